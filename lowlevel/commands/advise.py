"""`lowlevel advise`: which tile should be fast for a shape, and why."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace

from lowlevel import advise, catalog, hardware, tuned
from lowlevel.catalog import space
from lowlevel.catalog.entry import Variant
from lowlevel.catalog.select import select
from lowlevel.commands import common
from lowlevel.dtypes import TYPES
from lowlevel.errors import UsageError
from lowlevel.hardware import Limits
from lowlevel.problems.gemm import LAYOUTS, Gemm
from lowlevel.problems.make import make_problem
from lowlevel.problems.shapes import parse_shape
from lowlevel.progress import Progress

_ABOUT = """\
Lists a kernel's configurations for a shape on a GPU, those of its catalog entry and the products of its tuning space
that the host's rules admit, ranked by a cost model, or by the kernel's own count of clocks where it has one: shared
memory, registers, occupancy, waves, how full the last one is, the model's time. Then the four rules of thumb of
docs/chapter.md, section 6.6, with the best one's numbers. Needs no GPU. docs/tuning.md has the model's formula;
`lowlevel bench --tune` measures.

  lowlevel advise 4096 --dtype fp32
  lowlevel advise 2048x2304x768 --dtype fp32 --gpu A100 --no-compile
  lowlevel advise 4096 --kernel gemm/14 --dtype bf16 --layout NT --gpu H200 --top 30
"""


def add(commands) -> None:
    parser = commands.add_parser(
        "advise",
        help="rank a kernel's tiles for a shape and a GPU, and examine four rules of thumb (no GPU needed)",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=_ABOUT,
    )
    parser.add_argument("shape", metavar="MxNxK", help="4096 or 2048x2304x768")
    parser.add_argument("--dtype", type=str.lower, help="fp32, bf16, ... (default: the kernel's first, else bf16)")
    parser.add_argument("--layout", choices=LAYOUTS, help="default: the kernel's first")
    parser.add_argument("--gpu", default="H200", help="A100, H100 PCIe, H200, ... (default: H200)")
    what = "a kernel by name or number, gemm/08 (default: those of the type that have a tuning space)"
    parser.add_argument("--kernel", help=what)
    parser.add_argument("--top", type=common.positive, default=12, help="how many to compile and show (12)")
    what = "leave the registers estimated (~) instead of compiling what is shown"
    parser.add_argument("--no-compile", action="store_true", help=what)
    common.add_output(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    limits = hardware.find(arguments.gpu)
    shapes = parse_shape(arguments.shape)
    if len(shapes) > 1:
        raise UsageError(f"advise takes one shape, not {len(shapes)}")
    found = able(families(arguments), shapes[0], limits, arguments)
    if arguments.json:
        print(json.dumps([advise.as_json(advice) for advices, *_ in found for advice in advices], indent=1))
        return 0
    for number, (advices, ranked, problem) in enumerate(found):
        print(("\n" if number else "") + heading(advices[0].variant, problem, limits) + "\n")
        alike = advise.common_numbers(advices)
        rows = [{"": place + 1, **advise.row(a, alike)} for place, a in enumerate(advices)]
        silent = set() if any(row["limit"] for row in rows) else {"limit"}  # a kernel's own count names none
        common.print_rows([{k: v for k, v in row.items() if k not in silent} for row in rows], arguments)
        print("\n" + below(advices[0], alike, limits))
        if len(advise.told_apart(ranked)) < len(ranked):
            print("A row stands for those, too, which take its tiles in another order.")
        if text := stored(advices[0].variant, problem, limits):
            print(text)
        print("\n" + admitted(advices[0].variant, problem, limits))
        print("\nThe four rules of thumb, with the numbers of the first:")
        print(advise.rules_text([advices[0], *ranked], problem, limits))
    return 0


def families(arguments: argparse.Namespace) -> list[Variant]:
    """A variant for each kernel that is asked for: of its type and layout, in any configuration."""
    if arguments.dtype and arguments.dtype not in TYPES:
        raise UsageError(f"no dtype '{arguments.dtype}'; there are: {', '.join(TYPES)}")
    dtype = arguments.dtype or (None if arguments.kernel else "bf16")
    variants = select([arguments.kernel]) if arguments.kernel else [v for v in catalog.variants() if v.kernel.space]
    variants = [v for v in variants if v.kernel.operation == "gemm" and v.kernel.takes_numbers]
    wanted = [v for v in variants if dtype in (None, v.type.name) and arguments.layout in (None, v.layout)]
    if not wanted:
        have = common.grouped(variants)
        what = arguments.kernel or "a kernel with a tuning space"
        asked = " ".join(filter(None, (dtype, arguments.layout)))
        raise UsageError(f"no {asked} tile of {what} to advise on; there are: {', '.join(have) or 'none in CUDA C++'}")
    return list({v.kernel: v for v in reversed(wanted)}.values())[::-1]


#: The best configurations of a kernel, all of them, and the problem that they are for.
Family = tuple[list[advise.Advice], list[advise.Advice], Gemm]


def able(
    variants: Sequence[Variant], shape: tuple[int, ...], limits: Limits, arguments: argparse.Namespace
) -> list[Family]:
    """Each kernel's. One that was not asked for by name and cannot run on this GPU is left out, with a line on
    standard error; UsageError with every reason when none is left."""
    found, reasons = [], []
    for variant in variants:
        problem = make_problem(variant, shape)
        try:
            found.append(family(variant, problem, limits, arguments))
        except UsageError as error:
            if arguments.kernel:
                raise
            reasons.append(str(error))
    if not found:
        raise UsageError("; ".join(reasons))
    if reasons:
        print(f"lowlevel: left out, since {limits.name} cannot run it: {'; '.join(reasons)}", file=sys.stderr)
    return found


def family(variant: Variant, problem: Gemm, limits: Limits, arguments: argparse.Namespace) -> Family:
    """The best configurations, with what the compiler says of them unless that is not wanted; and all of them."""
    arch = catalog.request(variant, limits.arch).arch  # refuses a kernel that this GPU cannot run
    ranked = advise.advise(variant, problem, limits)
    advices = advise.told_apart(ranked)[: arguments.top]
    if not advices:
        raise UsageError(f"{limits.name} holds no configuration of {variant.kernel.label}")
    if not arguments.no_compile:
        with Progress(len(advices), "compiling") as progress:
            advices = advise.compiled(advices, problem, limits, arch, progress.reached)
    return advices, ranked, problem


def heading(variant: Variant, problem: Gemm, limits: Limits) -> str:
    """`cuda:gemm/08_warp_tile, 4096x4096x4096 fp32 NN on H200: 132 SMs, 227 KiB of shared memory a block`."""
    what = f"{variant.kernel.shown}, {problem.label} {variant.type.name} {variant.layout}"
    return (
        f"{what} on {limits.name}: {limits.sms} SMs, {limits.shared_per_block_optin >> 10} KiB of shared memory a block"
    )


def below(first: advise.Advice, alike: Sequence[str], limits: Limits) -> str:
    """What the table leaves out: the numbers that all have, and what its time is."""
    lines = [f"all: {', '.join(alike)}"] if alike else []
    what = "the cost model of docs/tuning.md"
    if first.estimate.own:
        what = f"the kernel's own count of clocks, at {limits.sm_clock_mhz} MHz"
    lines.append(f"model us: {what}; it ranks configurations, and predicts nothing.")
    if first.estimate.own:
        lines.append("Tiles are those of a cluster, waves of the clusters that are there at once.")
    return "\n".join(lines)


def stored(variant: Variant, problem: Gemm, limits: Limits) -> str:
    """The choice that was measured for exactly this shape on this GPU, with its figures, or nothing."""
    choice = tuned.exact(variant.kernel, variant.type, variant.layout, problem, limits)
    if choice is None:
        return ""
    figures = [f"{choice.median_us:.1f} us"] if choice.median_us is not None else []
    if choice.vs_best_library is not None:
        figures.append(f"{choice.vs_best_library:.3f} of the best library's speed")
    if choice.vs_reference is not None:
        figures.append(f"{choice.vs_reference:.3f} of the speed of what would be taken without tuning")
    config = replace(variant, config=choice.config).config_text
    return f"measured: {config} is the stored choice for this shape: {', '.join(figures) or 'without figures'}."


def admitted(variant: Variant, problem: Gemm, limits: Limits) -> str:
    """How many configurations there are to choose from, and why the space's others are none."""
    points = len(space.points(variant.kernel, problem, limits))
    products = sum(1 for _ in space.weighed(variant.kernel, problem, limits))
    if not products:
        return f"{points} configurations in the catalog entry, which has no tuning space."
    lines = [f"{points} configurations are admitted, of {products} products of the tuning space. The others have"]
    refused = space.refused(variant.kernel, problem, limits)
    lines += [f"  {count:5}  {rule}" for rule, count in sorted(refused.items(), key=lambda item: -item[1])]
    if (ranked := len(space.tried(variant.kernel, problem, limits))) < points:
        lines.append(f"{ranked} are ranked: of those that differ in STAGES alone, the deepest and the entry's own.")
    return "\n".join(lines)
