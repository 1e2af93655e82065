"""`lowlevel study tma`: where TMA puts a box of a tensor in shared memory."""

from __future__ import annotations

import argparse
import json
import re

from tabulate import tabulate

from lowlevel.errors import UsageError
from lowlevel.study import swizzle, tma

_ABOUT = """\
Draws what a TMA load of a box puts where in shared memory: lines of 128 bytes, in each place row:chunk of the box, a
chunk being 16 bytes of a row. Sizes and coordinates go from the outermost dimension to the innermost, as an array's
shape; the instruction takes its coordinates the other way round.

  lowlevel study tma --box 8x64 --element 2 --swizzle 128B       8 rows of 64 elements of 16 bits: one pattern
  lowlevel study tma --box 8x64 --element 2 --swizzle 128B --offset 128
                                                                 not at a multiple of 1024: the pattern stays behind
  lowlevel study tma --box 8x64 --element 2                      not swizzled: a column of chunks lies in 4 banks
  lowlevel study tma --box 4x64 --element 2 --swizzle 128B --tensor 100x100 --at 98,-8
                                                                 partly outside: zeros, which count as bytes that land
  lowlevel study tma --box 2x4x32 --element 1 --swizzle 32B      three dimensions: rows are 1.3, and follow each other

`0` is a chunk of zeros, `+0` follows a chunk with some zeros, a dot is a place where nothing is written. The innermost
coordinate must be a multiple of 16 bytes, or the hardware does not load the box. A box ends within the 232448 bytes of
shared memory that a block can have.
"""


def add(tools) -> None:
    parser = tools.add_parser(
        "tma",
        help="what TMA puts where in shared memory",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=_ABOUT,
    )
    parser.add_argument("--box", type=_extents, required=True, metavar="8x64", help="elements, innermost last")
    parser.add_argument("--element", type=int, default=2, choices=tuple(tma.ELEMENTS), help="bytes of one (2)")
    parser.add_argument("--swizzle", choices=tuple(swizzle.SPANS), default="none", help="none if not given")
    parser.add_argument("--offset", type=int, default=0, metavar="BYTES", help="where in shared memory (0)")
    parser.add_argument("--tensor", type=_extents, default=(), metavar="100x100", help="the tensor's shape (the box's)")
    what = "coordinates of the box's first element (0,0); `--at=-2,0` for one that begins with a minus"
    parser.add_argument("--at", type=_coordinates, default=(), metavar="98,-8", help=what)
    parser.add_argument("--json", action="store_true", help="print JSON: row, chunk, address, elements (0: zero)")
    parser.set_defaults(run=run)


def _extents(text: str) -> tuple[int, ...]:
    if not re.fullmatch(r"[0-9]+(x[0-9]+)*", text):
        raise argparse.ArgumentTypeError(f"'{text}' is no shape: 8x64")
    return tuple(map(int, text.split("x")))


def _coordinates(text: str) -> tuple[int, ...]:
    if not re.fullmatch(r"-?[0-9]+(,-?[0-9]+)*", text):
        raise argparse.ArgumentTypeError(f"'{text}' is no list of coordinates: 98,-8")
    return tuple(map(int, text.split(",")))


def run(arguments: argparse.Namespace) -> int:
    it = tma.Box(arguments.element, arguments.box, arguments.swizzle, arguments.offset, arguments.tensor, arguments.at)
    if it.refusal:
        raise UsageError(it.refusal)
    if arguments.json:
        chunks = [
            {"row": r, "chunk": c, "address": it.address(r, c), "elements": it.elements(r, c)} for r, c in it.places()
        ]
        print(json.dumps({"bytes": it.bytes, "chunks": chunks}))
        return 0
    print(f"{it.rows} rows of {it.chunks} chunks, swizzle {it.swizzle}; the mbarrier expects {it.bytes} bytes")
    print("\n".join(f"  {line}" for line in it.told()) + "\n")
    heads, lines = tma.draw(it)
    print(tabulate(lines, heads, disable_numparse=True, stralign="right"))
    if note := _note(it):
        print(f"\n{note}")
    return 0


def _note(it: tma.Box) -> str:
    """What is easily overlooked of this box."""
    pattern = swizzle.PATTERNS[it.swizzle]
    if pattern and it.offset % pattern:
        after = it.offset % pattern
        return f"The pattern begins at multiples of {pattern} bytes, and row 0 of the box {after} after one."
    return ""
