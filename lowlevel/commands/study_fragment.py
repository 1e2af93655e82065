"""`lowlevel study fragment`: which lane and register holds which element."""

from __future__ import annotations

import argparse
import json

from tabulate import tabulate

from lowlevel.study.fragment import Fragment, describe, draw, families, find, held

_ABOUT = """\
Draws how a warp's 32 lanes, or a warpgroup's 128, hold a matrix in their registers. A cell says lane:register; a
register of several elements is one cell, its elements from the low bits up.

  lowlevel study fragment                            what there is
  lowlevel study fragment mma.m16n8k16               A, B and D of that product
  lowlevel study fragment mma.m16n8k16.a --lane 5    what lane 5 holds of A
  lowlevel study fragment ldmatrix.x4.trans --register 2
  lowlevel study fragment wgmma.m64n128k16.d --lane 37   of the sums, its two rows
  lowlevel study fragment stmatrix.x4                where a register's elements are stored
  lowlevel study fragment 'wmma*' --json             every element, for a program
"""


def add(tools) -> None:
    parser = tools.add_parser(
        "fragment",
        help="which lane and register holds which element",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=_ABOUT,
    )
    parser.add_argument("name", nargs="?", help="a fragment, the beginning of its name, or a glob")
    parser.add_argument("--lane", type=int, metavar="N", help="only what this lane holds, 0 to 31 or 127")
    parser.add_argument("--register", type=int, metavar="I", help="only what is held in this register, from 0")
    parser.add_argument("--json", action="store_true", help="print JSON: lane, register, part, row and column")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    if arguments.name is None:
        rows = [_listed(name, members) for name, members in families().items()]
        print(tabulate(rows, ("fragment", "elements", "registers", "holds"), disable_numparse=True))
        return 0
    found = find(arguments.name)
    chosen = {f.name: held(f, arguments.lane, arguments.register) for f in found}
    if arguments.json:
        print(json.dumps(chosen))
        return 0
    for number, fragment in enumerate(found):
        print(("\n" if number else "") + describe(fragment))
        if arguments.lane is not None:
            print("\n" + _list(chosen[fragment.name]))
        print("\n" + draw(fragment, arguments.lane, arguments.register))
    return 0


def _listed(name: str, members: list[Fragment]) -> tuple[str, ...]:
    """A fragment's line in the list, or a family's."""
    one, last = members[0], members[-1]
    if one is last:
        return name, f"{one.rows} x {one.columns}", str(one.registers), one.about
    several = f"{one.rows} x {one.columns}, {members[1].columns} .. {last.columns}"
    return name, several, f"{one.registers} .. {last.registers}", one.about


def _list(elements: list[dict]) -> str:
    """A line a register: `a lane's register 1: (8, 2) (8, 3)`."""
    lines: dict[int, list[str]] = {}
    for e in elements:
        lines.setdefault(e["register"], []).append(f"({e['row']}, {e['column']})")
    return "\n".join(f"  register {register}: {' '.join(places)}" for register, places in lines.items())
