"""`lowlevel bench --tune`: which configuration of a kernel is fastest for a shape, and stored as its choice.

Three passes, each over fewer and for longer. The first verifies and times every candidate, in heats of a dozen that run
interleaved; each heat has the reference in it, the configuration that would be taken without tuning, and a candidate's
score is its ratio to the reference in the same rounds, since clocks change from heat to heat. The second repeats the
best quarter together, the third the best three, beside the libraries.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TextIO

from lowlevel import catalog, model, results, suite, terminal, tuned
from lowlevel.bench import Bench, BenchOptions
from lowlevel.catalog import space
from lowlevel.catalog.entry import Config, Variant
from lowlevel.errors import UsageError
from lowlevel.hardware import Limits
from lowlevel.journal import Journal
from lowlevel.measure import Measurement, Options
from lowlevel.measure.statistics import paired_ratio
from lowlevel.problems.gemm import Gemm
from lowlevel.progress import RowProgress, TimeLeft
from lowlevel.results import Row
from lowlevel.shape_class import shape_class
from lowlevel.suite import Group, Suite
from lowlevel.toolchain import cache
from lowlevel.tuned import Choice, Figure, Tuned

#: Candidates of a heat, beside the reference.
HEAT = 11
#: Of the first pass's candidates the share that goes on, at least so many, and how many of those go on again.
QUARTER, SEMIFINALISTS, FINALISTS = 4, 6, 3
#: Share of the budget, fewest and most rounds of each pass.
PASSES = {1: (0.5, 3, 6), 2: (0.2, 5, 12), 3: (0.3, 8, 60)}
#: What a configuration that the model cannot tell from another is put back by, relatively.
TIE = 0.005
#: A winner must be faster than the reference by this much, relatively: rounds tell medians apart to 0.2 %.
MARGIN = 0.005


@dataclass(frozen=True)
class TuneOptions:
    """What the command line asks for. budget: seconds of timing for each shape. candidates: how many to try, the best
    by the cost model and those of the catalog entry. json_path: the file of choices, in place of the user's own."""

    patterns: tuple[str, ...]
    shapes: str = ""
    dtypes: tuple[str, ...] = ()
    layouts: tuple[str, ...] = ()
    arch: str | None = None
    timer: str = "auto"
    cool: bool = False
    budget: float = 60.0
    candidates: int = 48
    json_path: Path | None = None
    device: int = 0


def run_tune(options: TuneOptions, out: TextIO | None = None) -> int:
    """Tunes what `options` name, prints and stores the choices. Returns 0, or 1 when a candidate is wrong or fails.

    Raises UsageError or MissingError for what cannot be started. After Ctrl-C or SIGTERM the choices made so far are
    stored, and the same command goes on with the heat that was interrupted.
    """
    out = out or sys.stdout
    groups = choose(options)
    with Tuner(options, groups) as tuner:
        path = options.json_path or tuned.user_path(tuner.limits.name)
        results.check_writable(path)
        file = open_file(path, tuner.limits)
        print(tuner.first_screen(), file=out, flush=True)
        failed = False
        for variant, problem in jobs(groups):
            try:
                figures = tuner.tune(variant, problem, configs_named(groups, variant, problem))
            except KeyboardInterrupt:
                print(f"\n{tuner.progress_text(variant, problem)}", file=out, flush=True)
                raise
            choice = tuner.choice(variant, problem, figures)
            if choice:
                file = file.with_choice(choice)
                file.save(path)
            print("\n" + outcome(variant, problem, figures, choice, terminal.width(out)), file=out, flush=True)
            failed = failed or any(f.status in ("wrong", "failed", "hang", "implausible") for f in figures)
        tuner.finished(jobs(groups))
        print(f"\nChoices are in {path}", file=out, flush=True)
    return int(failed)


def choose(options: TuneOptions) -> list[Group]:
    """The problems, each with the kernels to tune for it. UsageError when no kernel named has a tuning space."""
    groups = suite.selection(options.patterns, options.shapes, options.dtypes, options.layouts)
    able = [replace(g, variants=tuple(v for v in g.variants if v.kernel.space)) for g in groups]
    if not any(group.variants for group in able):
        have = ", ".join(k.label for k in catalog.kernels() if k.space)
        names = ", ".join(dict.fromkeys(v.kernel.shown for g in groups for v in g.variants))
        raise UsageError(f"{names or 'what was named'}: no tuning space in the catalog; kernels with one: {have}")
    return [group for group in able if group.variants]


def jobs(groups: Iterable[Group]) -> list[tuple[Variant, Gemm]]:
    """What is tuned: a kernel in a type and a layout for a problem, once, also if several configurations are named."""
    found = [(variant, group.problem) for group in groups for variant in group.variants]
    return list({(v.kernel.label, v.type.name, v.layout, p.label): (v, p) for v, p in found}.values())


def configs_named(groups: Iterable[Group], variant: Variant, problem: Gemm) -> list[Config]:
    """Configurations of the command line that are none of the entry's."""
    same = [v for group in groups if group.problem == problem for v in group.variants if v.kernel is variant.kernel]
    return [v.config for v in same if (v.type, v.layout) == (variant.type, variant.layout) and not v.listed]


def open_file(path: Path, limits: Limits) -> Tuned:
    """The file's choices so far. UsageError, before anything is measured, for one that is damaged or of another GPU."""
    if not path.exists():
        return tuned.empty(limits)
    file = Tuned.load(path)
    if file.gpu != limits.name:
        raise UsageError(f"{path} holds choices for {file.gpu}, and this is {limits.name}: choose another with --json")
    return file


def candidates(
    variant: Variant, problem: Gemm, limits: Limits, count: int, named: Sequence[Config] = ()
) -> list[Variant]:
    """The configurations to try: the entry's, those named, then the best of the space, as `lowlevel advise` ranks them,
    but ties spread; `count` together."""
    points = space.tried(variant.kernel, problem, limits)
    ranked = model.rank(variant.kernel, points, problem, limits)
    wanted = [config for config in points if config in variant.kernel.configs_of(variant.type)]
    wanted += [config for config in named if config not in wanted]
    others = spread([(config, e.microseconds) for config, e in ranked if config not in wanted])
    return [at(variant, config) for config in (*wanted, *others)][: max(count, len(wanted))]


def spread(ranked: Sequence[tuple[Config, float]]) -> list[Config]:
    """Configurations by their estimates, each later one of a tie by TIE more: what the model cannot tell apart must not
    fill a list in which others are nearly as good."""
    before: Counter[float] = Counter()
    keys = []
    for config, estimate in ranked:
        keys.append((estimate * (1 + TIE * before[estimate]), config))
        before[estimate] += 1
    return [config for _, config in sorted(keys, key=lambda key: key[0])]


def at(variant: Variant, config: Config) -> Variant:
    return replace(variant, config=dict(config), chosen_by="tune")


class Tuner(Bench):
    """A bench whose groups are heats."""

    def __init__(self, options: TuneOptions, groups: Sequence[Group]):
        bench_options = BenchOptions(arch=options.arch, timer=options.timer, cool=options.cool, device=options.device)
        title = f"Tuning {len(jobs(groups))} shapes"
        super().__init__(bench_options, Suite("tune", title, options.budget * len(jobs(groups)), []))
        self._asked = options
        self._journal = Journal(tuned.unfinished_path(self.limits.name))
        self._pass = 1
        self._reference = ""
        self._ratios: dict[str, float] = {}

    def first_screen(self) -> str:
        """As a bench's, with what tuning does in place of its count of rows."""
        what = (
            f"{self.suite.title}, at most {self._asked.candidates} configurations each, about {self._asked.budget:g} s"
        )
        return "\n".join([*super().first_screen().splitlines()[:-1], f"{what} of timing each"])

    def tune(self, variant: Variant, problem: Gemm, named: Sequence[Config] = ()) -> list[Figure]:
        """The three passes; what the journal has is not measured again. named: configurations to try in any case."""
        reference = self.reference(variant, problem)
        wanted = candidates(variant, problem, self.limits, self._asked.candidates, named)
        if reference not in wanted:
            wanted.insert(0, reference)
        self._reference = reference.name
        binaries = self.build(wanted)
        self._left = TimeLeft(len(wanted) + SEMIFINALISTS + FINALISTS, self._asked.budget)
        with RowProgress(len(wanted) + SEMIFINALISTS + FINALISTS, "tuning", self._left) as progress:
            for self._pass in PASSES:
                libraries = suite.group([variant], problem.label)[0].libraries if self._pass == 3 else ()
                known = self.known(variant, problem)
                members = going_on(wanted, known, self._pass)
                for heat in heats(members, known, self._pass, reference):
                    self._heat(heat, variant, problem, libraries, binaries, len(members), progress)
        return self.known(variant, problem)

    def reference(self, variant: Variant, problem: Gemm) -> Variant:
        """The configuration that would be taken without a stored choice."""
        return at(variant, tuned.untuned(variant.kernel, problem, self.limits)[0])

    def _heat(
        self,
        heat: Sequence[Variant],
        variant: Variant,
        problem: Gemm,
        libraries: tuple[str, ...],
        binaries: Mapping,
        of: int,
        progress: RowProgress,
    ) -> None:
        """Verifies and times some candidates and the reference, and writes down what came of it."""
        reference = self.reference(variant, problem)
        known = self.known(variant, problem)
        failed = any(f.config == reference.config and f.status != "ok" for f in known)
        members = tuple(dict.fromkeys(heat if failed else (reference, *heat)))
        group = Group(problem, members, libraries)
        share = PASSES[self._pass][0] * self._asked.budget * len(group.variants) / max(of, 1)
        self._ratios = {}
        rows = self._group(group, binaries, share, progress)[: len(group.variants)]
        told = {tuple(f.config.items()) for f in known if f.passed == self._pass}
        fresh = [
            self._figure(one, row)
            for one, row in zip(group.variants, rows, strict=True)
            if tuple(one.config.items()) not in told
        ]
        self._journal.keep(self._key(variant, problem), self._fingerprint(variant, problem), known + fresh)
        self._left.finished(len(heat))
        progress.advance(len(heat))

    def _figure(self, variant: Variant, row: Row) -> Figure:
        ratio = self._ratios.get(variant.name)
        return Figure(
            dict(variant.config),
            self._pass,
            row.status,
            row.reason,
            row.median_us,
            row.iqr_us,
            row.samples,
            ratio,
            row.vs_best_library,
            row.registers,
            row.shared_bytes,
            row.spill_bytes,
        )

    def timing(self, budget_s: float) -> Options:
        """Fewer rounds for the many, more for the few."""
        _, least, most = PASSES[self._pass]
        return replace(super().timing(budget_s), least_rounds=least, most_rounds=most)

    def _fill(self, problem: Gemm, rows: Mapping[str, Row], measured: Mapping[str, Measurement]) -> None:
        super()._fill(problem, rows, measured)
        if self._reference in measured:
            base = measured[self._reference].times_us
            self._ratios = {name: paired_ratio(base, m.times_us)[0] for name, m in measured.items()}

    def known(self, variant: Variant, problem: Gemm) -> list[Figure]:
        """What was found out so far."""
        return self._journal.figures(self._key(variant, problem), self._fingerprint(variant, problem))

    def _key(self, variant: Variant, problem: Gemm) -> str:
        return f"{variant.kernel.label}[{variant.type.name},{variant.layout}] {problem.label}"

    def _fingerprint(self, variant: Variant, problem: Gemm) -> str:
        """Of the source, the compiler, and how it is timed."""
        request = catalog.request(self.reference(variant, problem), self.arch)
        regime = "cool" if self._asked.cool else "sustained"
        return f"{cache.key(request)[:24]} {self._asked.timer} {regime}"

    def finished(self, done: Iterable[tuple[Variant, Gemm]]) -> None:
        """The whole command is done: the next one starts anew."""
        self._journal.finish([self._key(*job) for job in done])

    def progress_text(self, variant: Variant, problem: Gemm) -> str:
        """What an interruption leaves."""
        known = self.known(variant, problem)
        tried = len({tuple(f.config.items()) for f in known})
        text = f"{self._key(variant, problem)}: {tried} configurations tried, pass {self._pass} of {len(PASSES)}"
        ahead = ordered([f for f in known if f.passed == max((f.passed for f in known), default=1)])
        best = f"; ahead is {config_text(variant, ahead[0].config)}" if ahead else ""
        return f"{text}{best}. The same command goes on from here."

    def choice(self, variant: Variant, problem: Gemm, figures: Sequence[Figure]) -> Choice | None:
        """What is stored; None when nothing ran."""
        reference = self.reference(variant, problem)
        best = winner(figures, reference.config)
        if best is None:
            return None
        e = self.environment
        return Choice(
            variant.kernel.label,
            variant.type.name,
            variant.layout,
            (problem.m, problem.n, problem.k),
            shape_class(problem, self.limits),
            best.config,
            dict(reference.config),
            best.median_us,
            best.vs_reference,
            best.vs_best_library,
            self.arch,
            str(e.get("date", "")),
            f"driver {e.get('driver')}, {e.get('nvrtc')}",
            tuple(figures),
        )


def heats(
    members: Sequence[Variant], known: Sequence[Figure], passed: int, reference: Variant
) -> list[Sequence[Variant]]:
    """The members that a pass has still to time, in heats; the reference is in every one anyway, so that it is named
    only where it would run alone."""
    told = {tuple(f.config.items()) for f in known if f.passed == passed}
    left = [v for v in members if tuple(v.config.items()) not in told]
    others = [v for v in left if v != reference] or left
    if not others:
        return []
    count = math.ceil(len(others) / HEAT) if passed == 1 else 1
    size = math.ceil(len(others) / count)
    return [others[i : i + size] for i in range(0, len(others), size)]


def going_on(wanted: Sequence[Variant], known: Sequence[Figure], passed: int) -> list[Variant]:
    """Who runs in a pass: everyone, then the best of the pass before."""
    if passed == 1:
        return list(wanted)
    count = max(SEMIFINALISTS, len(wanted) // QUARTER) if passed == 2 else FINALISTS
    best = ordered([f for f in known if f.passed == passed - 1])[:count]
    return [v for f in best for v in wanted if v.config == f.config]


def ordered(figures: Iterable[Figure]) -> list[Figure]:
    """Those that are right, fastest first: by their ratio to the reference, or by time where that did not run."""
    good = [f for f in figures if f.status == "ok" and f.median_us is not None]
    return sorted(good, key=lambda f: (f.vs_reference is None, -(f.vs_reference or 0.0), f.median_us))


def winner(figures: Sequence[Figure], reference: Config) -> Figure | None:
    """The fastest of the last pass that has any; the reference unless that is faster by more than the margin."""
    for passed in reversed(PASSES):
        if ranked := ordered([f for f in figures if f.passed == passed]):
            own = next((f for f in ranked if f.config == reference), None)
            first = ranked[0]
            return own if own and (first.vs_reference or 0) < 1 + MARGIN else first
    return None


def config_text(variant: Variant, config: Config) -> str:
    return at(variant, config).config_text


def outcome(
    variant: Variant, problem: Gemm, figures: Sequence[Figure], choice: Choice | None, width: int | None = None
) -> str:
    """The finalists, what was chosen, and what went wrong with whom. width: of the terminal that it is for."""
    title = f"{variant.kernel.shown}, {problem.label} {variant.type.name} {variant.layout}"
    tried = {tuple(f.config.items()) for f in figures}
    lines = [f"{title}: {len(tried)} configurations tried", ""]
    last = max((f.passed for f in figures if f.median_us is not None), default=1)
    shown = [_line(variant, f) for f in ordered([f for f in figures if f.passed == last])]
    if shown:
        columns = {heading: [line[heading] for line in shown] for heading in shown[0]}
        lines += [terminal.fitted(columns, width), ""]
    for figure in figures:
        if figure.status != "ok":
            lines.append(f"{config_text(variant, figure.config)}: {figure.status}: {figure.reason}")
    if choice is None:
        return "\n".join([*lines, "nothing ran: no choice is stored"])
    gain = (
        ""
        if choice.vs_reference is None
        else f", {choice.vs_reference:.3f} of {config_text(variant, choice.reference)}"
    )
    if choice.config == choice.reference:
        gain = ", which would be taken without tuning"
    lines.append(f"chosen: {config_text(variant, choice.config)}{gain}; class: {choice.shape_class}")
    return "\n".join(lines)


def _line(variant: Variant, f: Figure) -> dict[str, str]:
    return {
        "configuration": config_text(variant, f.config),
        "us": f"{f.median_us:.1f}",
        "x reference": "" if f.vs_reference is None else f"{f.vs_reference:.3f}",
        "x best library": "" if f.vs_best_library is None else f"{f.vs_best_library:.3f}",
        "regs": str(f.registers or ""),
        "shared": str(f.shared_bytes or ""),
        "rounds": str(f.samples or ""),
    }
