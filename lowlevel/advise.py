"""What a tile would cost: a family's configurations ranked for a shape and a GPU, and four rules of thumb examined."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from lowlevel import catalog, hardware, model
from lowlevel.catalog import space
from lowlevel.catalog.entry import Config, Variant
from lowlevel.dtypes import ELEMENTS
from lowlevel.errors import LowlevelError
from lowlevel.hardware import Limits
from lowlevel.model import Estimate, Tile
from lowlevel.problems.gemm import Gemm
from lowlevel.toolchain.build import build_all


@dataclass(frozen=True)
class Advice:
    """A configuration, its estimate, and whether the compiler has been asked: then `estimate` is made of its registers
    and `spills` is bytes. broken: numbers of the rules of thumb that it breaks. error: why it does not compile."""

    variant: Variant
    estimate: Estimate
    compiled: bool = False
    spills: int | None = None
    broken: tuple[int, ...] = ()
    error: str = ""


def advise(variant: Variant, problem: Gemm, limits: Limits) -> list[Advice]:
    """What `bench --tune` chooses its candidates from: the configurations of the entry and its tuning space that the
    host's rules admit, the best by the kernel's own count of clocks, or else by the model, first.

    UsageError for a kernel without a tile of shared memory, or one whose type the GPU has no rate for.
    """
    configs = space.tried(variant.kernel, problem, limits)
    ranked = model.rank(variant.kernel, configs, problem, limits)
    return [_advice(variant, config, estimate, problem, limits) for config, estimate in ranked]


def _advice(
    variant: Variant, config: Config, estimate: Estimate, problem: Gemm, limits: Limits, spills: int | None = None
) -> Advice:
    broken = tuple(number for number, rule in RULES.items() if rule.broken(estimate, problem, limits))
    one = Variant(variant.kernel, variant.type, variant.layout, config, variant.epilogue, "tune")
    return Advice(one, estimate, spills is not None, spills, broken)


def compiled(
    advices: Sequence[Advice],
    problem: Gemm,
    limits: Limits,
    arch: str,
    progress: Callable[[int, int], None] | None = None,
) -> list[Advice]:
    """The same with registers and shared memory as the compiler says, ranked again; those that do not compile last."""
    built = build_all([catalog.request(a.variant, arch) for a in advices], progress=progress)
    good, bad = [], []
    for advice, binary in zip(advices, built, strict=True):
        variant = advice.variant
        if isinstance(binary, LowlevelError):
            bad.append(Advice(variant, advice.estimate, broken=advice.broken, error=str(binary)))
            continue
        taken = binary.entries[variant.kernel.entry].resources
        tile = model.tile_of(variant.kernel, variant.config, problem, limits, taken.registers)
        dynamic = space.shared_bytes(variant.kernel, variant.config, problem, limits)
        tile = Tile(**{**vars(tile), "shared": taken.shared + dynamic})
        if not hardware.occupancy(limits, tile.threads, tile.registers, tile.shared).blocks_per_sm:
            bad.append(Advice(variant, advice.estimate, broken=advice.broken, error="an SM holds no such block"))
            continue
        estimate = model.estimate_of(variant.kernel, variant.config, tile, problem, limits)
        good.append(_advice(variant, variant.config, estimate, problem, limits, taken.spills))
    return sorted(good, key=lambda a: a.estimate.microseconds) + bad


def told_apart(ranked: Sequence[Advice]) -> list[Advice]:
    """The first of those that differ in the order of their tiles alone, where that makes no difference to the
    estimate."""
    firsts: dict[tuple, Advice] = {}
    for advice in ranked:
        variant = advice.variant
        others = tuple((name, n) for name, n in variant.config.items() if name not in variant.kernel.order)
        firsts.setdefault((others, advice.estimate), advice)
    return list(firsts.values())


def common_numbers(advices: Sequence[Advice]) -> list[str]:
    """The words `NAME=value` of a configuration that all have, where there are several."""
    texts = [advice.variant.config_text.split(",") for advice in advices]
    return [word for word in texts[0] if "=" in word and len(texts) > 1 and all(word in text for text in texts)]


def row(advice: Advice, common: Sequence[str] = ()) -> dict:
    """A line of the table, without the `common` words of a configuration. Registers that no compiler has confirmed
    carry a `~`, and so does what follows from them."""
    e, tile = advice.estimate, advice.estimate.tile
    about = "" if advice.compiled else "~"
    spilled = f" + {advice.spills} B spilled" if advice.spills else ""
    return {
        "configuration": ",".join(word for word in advice.variant.config_text.split(",") if word not in common),
        "from": "entry" if advice.variant.listed else "space",
        "threads": tile.threads,
        "shared": tile.shared,
        "registers": f"{about}{tile.registers}{spilled}",
        "blocks/SM": f"{about}{e.occupancy.blocks_per_sm} ({e.occupancy.limited_by})",
        "occupancy": f"{about}{100 * e.occupancy.fraction:.0f} %",
        "tiles": e.tiles,
        "waves": f"{e.waves:.2f}",
        "tail": f"{e.tail:.2f}",
        "model us": f"{e.microseconds:.1f}",
        "TFLOP/s": f"{e.tflops:.1f}",
        "limit": advice.error or e.bound,
        "breaks rule": ", ".join(map(str, advice.broken)),
    }


def as_json(advice: Advice) -> dict:
    """The same as plain numbers."""
    e, tile = advice.estimate, advice.estimate.tile
    return {
        "variant": advice.variant.name,
        "config": dict(advice.variant.config),
        "listed": advice.variant.listed,
        "threads": tile.threads,
        "shared": tile.shared,
        "registers": tile.registers if advice.compiled else None,
        "registers_estimated": None if advice.compiled else tile.registers,
        "spills": advice.spills,
        "blocks_per_sm": e.occupancy.blocks_per_sm,
        "occupancy": e.occupancy.fraction,
        "limited_by": e.occupancy.limited_by,
        "tiles": e.tiles,
        "waves": e.waves,
        "tail": e.tail,
        "model_us": e.microseconds,
        "model_tflops": e.tflops,
        "counted_by": "kernel" if e.own else "model",
        "limit": e.bound,
        "breaks_rules": list(advice.broken),
        "error": advice.error,
    }


@dataclass(frozen=True)
class ThumbRule:
    """A rule of thumb for tiles. broken: whether a tile breaks it. said: the rule with this tile's numbers. but: what
    decides instead, with this tile's numbers."""

    broken: Callable[[Estimate, Gemm, Limits], bool]
    said: Callable[[Estimate, Gemm, Limits], str]
    but: Callable[[Estimate, Gemm, Limits], str]


def _most_elements(problem: Gemm) -> int:
    return 16384 if ELEMENTS[problem.type.operand].bytes == 4 else 32768


def _sums(tile: Tile) -> int:
    return tile.wm * tile.wn // 32


def _rule_1() -> ThumbRule:
    def said(e: Estimate, problem: Gemm, _limits: Limits) -> str:
        return f"BM x BN at most {_most_elements(problem)}: {e.tile.bm} x {e.tile.bn} = {e.tile.bm * e.tile.bn}"

    def but(e: Estimate, problem: Gemm, limits: Limits) -> str:
        sums = 4 * e.tile.bm * e.tile.bn * e.tile.kgroups >> 10
        width = ELEMENTS[problem.type.operand].bytes
        ratio = 2 * e.tile.bm * e.tile.bn / ((e.tile.bm + e.tile.bn) * width)
        return (
            f"the sums lie in registers, {sums} of an SM's {4 * limits.registers_per_sm >> 10} KiB, and shared memory "
            f"follows BM + BN: {e.tile.shared} of {limits.shared_per_block_optin} bytes. A larger tile loads less: "
            f"{ratio:.0f} FLOP a byte here"
        )

    return ThumbRule(lambda e, p, _: e.tile.bm * e.tile.bn > _most_elements(p), said, but)


def _rule_2() -> ThumbRule:
    def said(e: Estimate, _problem: Gemm, _limits: Limits) -> str:
        return f"BK at least 8, and no larger than occupancy allows: {e.tile.bk}"

    def but(e: Estimate, problem: Gemm, _limits: Limits) -> str:
        element = ELEMENTS[problem.type.operand].bytes
        floor = "" if problem.type.unit == "fp32" else f"; an instruction takes {32 // element}, which is the floor"
        held = e.occupancy
        return (
            f"what counts is BK (STAGES - 1), {e.tile.bk * element * (e.tile.stages - 1)} bytes of k in flight{floor}. "
            f"Occupancy is limited by {held.limited_by} here, {held.blocks_per_sm} an SM"
        )

    return ThumbRule(lambda e, *_: e.tile.bk < 8, said, but)


def _rule_3() -> ThumbRule:
    def takers(e: Estimate, limits: Limits) -> int:
        return e.places if e.own else limits.sms

    def said(e: Estimate, _problem: Gemm, limits: Limits) -> str:
        what = "tiles for a cluster, since its blocks stay" if e.own else "blocks an SM"
        return f"at least two {what}, {2 * takers(e, limits)}: {e.tiles}"

    def but(e: Estimate, _problem: Gemm, limits: Limits) -> str:
        many, waves = takers(e, limits), -(-e.tiles // e.places)
        return (
            f"what counts is how full the last wave is: {e.tiles} tiles in {waves} waves of {e.places} "
            f"fill {100 * e.tail:.0f} % of the places, and the busiest {'cluster' if e.own else 'SM'} has "
            f"{-(-e.tiles // many)} tiles where the mean is {e.tiles / many:.2f}"
        )

    return ThumbRule(lambda e, _, limits: e.tiles < 2 * takers(e, limits), said, but)


def _rule_4() -> ThumbRule:
    def said(e: Estimate, _problem: Gemm, _limits: Limits) -> str:
        return f"at most 64 sums a thread: {_sums(e.tile)}"

    def but(e: Estimate, _problem: Gemm, _limits: Limits) -> str:
        if e.own:
            rows = 1000 * (e.tile.bm + e.tile.bn) / (e.tile.bm * e.tile.bn)
            return (
                f"the limit is {space.MOST_REGISTERS} registers a thread. A block starts with {e.tile.registers} each, "
                f"and warps that only copy can hand theirs on; more sums need fewer rows of A and B, {rows:.1f} for a "
                "thousand sums here"
            )
        read = 32 * (e.tile.wm + e.tile.wn) / (e.tile.wm * e.tile.wn)
        return (
            f"the limit is {space.MOST_REGISTERS} registers a thread, of which this takes about {e.tile.registers}; "
            f"more sums need fewer reads of shared memory, {read:.2f} elements for every 32 multiply-adds here"
        )

    return ThumbRule(lambda e, *_: _sums(e.tile) > 64, said, but)


#: The four rules of the chapter's section 6.6, which docs/chapter.md examines.
RULES: Mapping[int, ThumbRule] = {1: _rule_1(), 2: _rule_2(), 3: _rule_3(), 4: _rule_4()}


def rules_text(ranked: Sequence[Advice], problem: Gemm, limits: Limits) -> str:
    """The four rules with the first configuration's numbers: kept or broken, what the best that keeps a broken one
    would cost, and what decides in the rule's place."""
    first = ranked[0]
    lines = []
    for number, rule in RULES.items():
        said, but = (text(first.estimate, problem, limits) for text in (rule.said, rule.but))
        verdict = f"broken, and {_price(number, ranked)}" if number in first.broken else "kept"
        lines.append(f"  {number}. {said}: {verdict}.\n     {but[0].upper()}{but[1:]}.")
    return "\n".join(lines)


def _price(number: int, ranked: Sequence[Advice]) -> str:
    """What keeping a rule would cost by the model, where the first of `ranked` breaks it."""
    keeping = next((a for a in ranked if number not in a.broken), None)
    if keeping is None:
        return "no configuration here keeps it"
    more = keeping.estimate.microseconds / ranked[0].estimate.microseconds - 1
    cost = "no slower" if more < 0.005 else f"{100 * more:.0f} % slower: the rule does not hold here"
    return f"the best that keeps it, {keeping.variant.config_text}, is {cost}"
