"""`lowlevel study side`: a main loop in CUDA C++ or MLIR, PTX and SASS."""

from __future__ import annotations

import argparse
import itertools
import json
import shutil
import sys
from dataclasses import asdict

from tabulate import tabulate

from lowlevel.commands import common
from lowlevel.study.classes import table
from lowlevel.study.side import Column, Side, side

#: From this many columns of text on, three loops stand beside each other.
_WIDE = 140

_ABOUT = """\
Shows a kernel's main loop in CUDA C++, in PTX and as machine code, and counts the instructions of one turn.

  lowlevel study side gemm/04                  CUDA C++, the PTX written by hand, and the SASS of the CUDA C++
  lowlevel study side cuda:gemm/04             the same with the compiler's PTX
  lowlevel study side ptx:gemm/04              the same with the SASS of the hand-written PTX
  lowlevel study side mlir:gemm/14             MLIR, the PTX that it is lowered to, and the SASS of that
  lowlevel study side 'gemm/13[fp16,NN]'       another type, layout or configuration than the default
  lowlevel study side gemm/04 --arch sm_80 --lines 30
  lowlevel study side gemm/04 --width 200 | less -S

The loop is the smallest that multiplies and also brings what it multiplies; of several, such as a fast and a slow path,
the one with most multiplications. The number before an instruction is the line of the CUDA C++ that it comes from, in
the file that holds the loop: the kernel's, or a header of cu/include. CUDA C++ that stands beside hand-written PTX has
its type, layout and configuration. Of more than eight registers in braces the compiler's PTX shows the first two and
the last. Beside each other from 140 columns on, else one below the other.
"""


def add(tools) -> None:
    parser = tools.add_parser(
        "side",
        help="a main loop in CUDA C++ or MLIR, PTX and SASS",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=_ABOUT,
    )
    parser.add_argument("variant", help="a kernel, its number, or a row's whole name")
    parser.add_argument("--lines", type=common.positive, metavar="N", help="at most so many lines of each loop")
    parser.add_argument("--width", type=common.positive, metavar="N", help="columns of text (default: the terminal's)")
    parser.add_argument("--arch", default="sm_90a", help="what to compile for (default sm_90a)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    found = side(arguments.variant, arguments.arch)
    if arguments.json:
        print(json.dumps(asdict(found), indent=1))
        return 0
    print(rendered(found, arguments.lines, arguments.width or _terminal()))
    print("\nInstructions of one turn of the loop, as they stand in it:\n")
    print(tabulate(table(found.mixes), "keys") if found.mixes else "no loop")
    return 0


def rendered(found: Side, most: int | None, width: int) -> str:
    """The columns beside each other where `width` allows, else one below the other."""
    columns = [_cut(column, most) for column in found.columns]
    if width < _WIDE:
        return "\n\n".join("\n".join((f"--- {c.title}", *c.lines)) for c in columns)
    each = (width - 3 * (len(columns) - 1)) // len(columns)
    titles = itertools.zip_longest(*(_folded(c.title, each) for c in columns), fillvalue="")
    rows = [*titles, ["-" * each] * len(columns), *itertools.zip_longest(*(c.lines for c in columns), fillvalue="")]
    return "\n".join(" | ".join(f"{cell[:each]:{each}}" for cell in row).rstrip() for row in rows)


def _cut(column: Column, most: int | None) -> Column:
    if most is None or len(column.lines) <= most:
        return column
    return Column(column.title, (*column.lines[:most], f"     ... {len(column.lines) - most} more lines"))


def _folded(text: str, width: int) -> list[str]:
    return [text[i : i + width] for i in range(0, len(text), width)]


def _terminal() -> int:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
