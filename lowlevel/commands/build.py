"""`lowlevel build`: compile without a GPU, and say what the kernels take."""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence

from lowlevel import static, terminal
from lowlevel.catalog.entry import Variant
from lowlevel.commands import common
from lowlevel.progress import Progress
from lowlevel.toolchain.arch import exists_on, parse_arch

#: What a static table is made for when no architecture is named: A100, and H100/H200.
DEFAULT_ARCHS = ("sm_80", "sm_90a")


def add(commands) -> None:
    parser = commands.add_parser(
        "build",
        help="compile, and tabulate registers, shared memory, spills, occupancy (no GPU needed)",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Compiles kernels and tabulates what they take. Exit code 1 if one does not compile, spills,\n"
        "lacks an instruction it is about, or draws a remark from the compiler that its entry does not explain; or if\n"
        "every row is skipped.\n\n"
        "  lowlevel build gemm --arch sm_80,sm_90\n"
        "  lowlevel build cuda:gemm/05* --sweep TM=4,8,16 --sweep TN=4,8   registers and spills of six tilings\n",
    )
    common.add_words(parser, shapes=False)
    common.add_own(parser)
    common.add_sweep(parser)
    common.add_filters(parser, "architectures, with commas: sm_80,sm_90a (the default)")
    common.add_output(parser)
    parser.add_argument("--gpu", help="whose limits the occupancy is for: A100, H100 PCIe, H200, ...")
    parser.add_argument("-j", "--jobs", type=common.positive, help="compilers at work at once (default: one a core)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    variants = common.swept(common.chosen(common.with_own(arguments.words, arguments), arguments), arguments)
    archs = [parse_arch(a) for a in common.comma_list(arguments.arch)] if arguments.arch else DEFAULT_ARCHS
    with Progress(len(variants) * len(archs), "compiling") as progress:
        rows = static.static_rows(variants, archs, arguments.gpu, arguments.jobs, progress.reached)
    if arguments.json:
        print(json.dumps([dataclasses.asdict(row) for row in rows], indent=1))
    else:
        print_built(list(itertools.product(variants, archs)), rows, arguments)
    if all(row.skipped for row in rows):
        print("lowlevel: nothing was built: every row is skipped, for the reason given", file=sys.stderr)
        return 1
    return int(not all(row.ok for row in rows))


def print_built(
    asked: Sequence[tuple[Variant, str]], rows: Sequence[static.StaticRow], arguments: argparse.Namespace
) -> None:
    """The table, and below it the kernels that it leaves out: those that do not exist for an architecture."""
    there = [exists_on(variant.kernel.archs, arch) for variant, arch in asked]
    if shown := list(itertools.compress(rows, there)):
        common.print_rows([_shown(row) for row in shown], arguments)
    absent = defaultdict(list)  # architecture and reason -> kernels
    for (variant, arch), row, exists in zip(asked, rows, there, strict=True):
        if not exists:
            absent[arch, row.skipped].append(variant.kernel.shown)
    for number, ((arch, reason), kernels) in enumerate(absent.items()):
        if shown or number:
            print()
        text = f"{arch}: {reason}: {', '.join(gathered(dict.fromkeys(kernels)))}"
        print("\n".join(terminal.wrapped(text, terminal.width(sys.stdout) or len(text))))


def gathered(kernels: Iterable[str]) -> list[str]:
    """`cuda:gemm/20 to 27` and `mlir:gemm/20` for the rungs among the names, which come by number; others in full."""
    found: dict[str, list[int]] = {}
    for name in kernels:
        rung = re.fullmatch(r"(\w+:\w+/)(\d+)_\w+", name)
        found.setdefault(rung[1] if rung else name, []).extend([int(rung[2])] if rung else [])
    return [ladder + _runs(numbers) for ladder, numbers in found.items()]


def _runs(numbers: Sequence[int]) -> str:
    """`20 to 23, 25`: three or more that follow each other by the first and the last of them."""
    runs: list[list[int]] = []
    for number in numbers:
        if not runs or number != runs[-1][-1] + 1:
            runs.append([])
        runs[-1].append(number)
    parts = [f"{run[0]:02} to {run[-1]:02}" if len(run) > 2 else ", ".join(f"{n:02}" for n in run) for run in runs]
    return ", ".join(parts)


def _shown(row: static.StaticRow) -> dict:
    remarks = [row.error, row.skipped and f"skipped: {row.skipped}", *row.advisories]
    remarks += [f"{opcode} MISSING" for opcode in row.missing]
    occupancy = "" if row.occupancy is None else f"{100 * row.occupancy:.0f} % ({row.limited_by}, {row.gpu})"
    return {
        "variant": row.variant,
        "arch": row.arch,
        "registers": row.registers,
        "shared": row.shared,
        "spills": row.spills,
        "occupancy": occupancy,
        "instructions": row.instructions,
        "remarks": [r for r in remarks if r],
    }
