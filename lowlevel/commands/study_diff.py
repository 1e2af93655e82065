"""`lowlevel study diff`: what a rung of the ladder adds to the one before."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable

from lowlevel.commands import common
from lowlevel.study import diff
from lowlevel.toolchain.arch import parse_arch

_ABOUT = """\
Shows what changes from one kernel to another: the sources without their header comments, then what the compiler makes
of them: registers, shared memory, occupancy, and the instructions of the whole kernel by class, where they differ.

  lowlevel study diff gemm/04 gemm/05
  lowlevel study diff ptx:gemm/02 ptx:gemm/04 --header
  lowlevel study diff gemm/04 gemm/05 --table --arch sm_80,sm_90a
  lowlevel study diff cuda:gemm/13 ptx:gemm/13 --table
  lowlevel study diff 'gemm/14[NT]' 'gemm/14[NN]' --table

A name alone is compared in the type and layout that both have, in its default configuration. A bracket chooses: a type,
a layout, a configuration (gemm/13[fp16,NN,128x128x64,s3]), or an epilogue. `lowlevel list gemm/13` shows what there is.
"""
_COLOURS = {"+": "32", "-": "31", "@": "36"}


def add(tools) -> None:
    parser = tools.add_parser(
        "diff",
        help="what a rung of the ladder adds to the one before",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=_ABOUT,
    )
    parser.add_argument("first", metavar="A", help="a kernel, its number, or a row's whole name")
    parser.add_argument("second", metavar="B", help="the other")
    parser.add_argument("--header", action="store_true", help="with the header comments")
    parser.add_argument("--table", action="store_true", help="only the table")
    parser.add_argument("--color", choices=("auto", "always", "never"), default="auto", help="(auto: in a terminal)")
    parser.add_argument("--arch", type=common.comma_list, help="with commas (default sm_80,sm_90a, if both can be)")
    common.add_output(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    archs = [parse_arch(arch) for arch in arguments.arch or ()]
    first, second = diff.pair(arguments.first, arguments.second)
    archs = archs or diff.shared_archs(first, second)
    lines = diff.sources(first.kernel, second.kernel, arguments.header)
    rows = diff.table(diff.compared(first, second, archs))
    if arguments.json:
        print(json.dumps({"first": first.name, "second": second.name, "source": lines, "table": rows}, indent=1))
        return 0
    if not arguments.table:
        print("\n".join(coloured(lines) if wants_colour(arguments.color) else lines) or "The sources are the same.")
        print()
    print(f"first: {first.name}, second: {second.name}\n")
    common.print_rows(rows, arguments)
    return 0


def wants_colour(choice: str) -> bool:
    """NO_COLOR is heeded: no-color.org."""
    return choice == "always" or (choice == "auto" and sys.stdout.isatty() and not os.environ.get("NO_COLOR"))


def coloured(lines: Iterable[str]) -> list[str]:
    """Added lines green, removed ones red, places cyan."""
    return [f"\x1b[{_COLOURS[line[0]]}m{line}\x1b[0m" if line[:1] in _COLOURS else line for line in lines]
