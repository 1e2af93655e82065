"""`lowlevel study banks`: bank conflicts of a layout in shared memory, without a GPU."""

from __future__ import annotations

import argparse

from lowlevel.commands import common
from lowlevel.errors import UsageError
from lowlevel.study import banks, layout
from lowlevel.study.expression import Formula
from lowlevel.study.layout import Layout, Walk

_ABOUT = """\
Counts the passes (ncu: wavefronts) that a warp's access of shared memory takes, and says which lanes collide.

A layout, met in the usual ways (ldmatrix: 16 rows by two chunks of 16 bytes; others: along rows and down a column):

  lowlevel study banks --row-bytes 64 --access ldmatrix                     8 rows lie in the same banks
  lowlevel study banks --row-bytes 64 --access ldmatrix --pad 16
  lowlevel study banks --row-bytes 64 --access ldmatrix --xor 'row / 2 % 4' chunk number XOR a formula of the row
  lowlevel study banks --row-bytes 128 --access 4 --pad 4                   a 32 x 32 tile of words, one word of pad
  lowlevel study banks --row-bytes 64 --access 16 --row 'lane / 4' --chunk 'lane % 4' --store

One access, by a formula for each lane's byte address:

  lowlevel study banks --address '128 * lane' --access 4
  lowlevel study banks --address '16 * (lane % 8)' --access 16 --lanes 24   the lanes from 24 on take no part

Formulas have whole numbers, + - * / % ^ & | << >> and names: `lane`; `row` for --xor. `/` divides without remainder.
Exit code 1 when an XOR moves data out of its row.
"""


def add(tools) -> None:
    parser = tools.add_parser(
        "banks",
        help="bank conflicts of a layout in shared memory",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=_ABOUT,
    )
    parser.add_argument(
        "--access",
        required=True,
        choices=("4", "8", "16", "ldmatrix", "ldmatrix.x1", "ldmatrix.x2", "ldmatrix.x4"),
        help="bytes a lane, or ldmatrix (that is x4)",
    )
    parser.add_argument("--store", action="store_true", help="a store, not a load")
    one = parser.add_argument_group("a layout")
    one.add_argument("--row-bytes", type=common.positive, metavar="N", help="bytes of data in a row")
    one.add_argument("--pad", type=int, default=0, metavar="BYTES", help="bytes left free after each row")
    one.add_argument("--xor", default="0", metavar="FORMULA", help="what a chunk's number is XORed with: 'row %% 8'")
    one.add_argument("--row", metavar="FORMULA", help="each lane's row: 'lane %% 16'")
    one.add_argument("--chunk", metavar="FORMULA", help="each lane's chunk of the row: 'lane / 16'")
    other = parser.add_argument_group("one access")
    other.add_argument("--address", metavar="FORMULA", help="each lane's byte address: '128 * lane'")
    other.add_argument("--lanes", type=common.positive, metavar="N", help="how many lanes take part (32)")
    common.add_output(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    access = banks.find(access_of(arguments))
    if (arguments.address is None) == (arguments.row_bytes is None):
        raise UsageError("give a layout, `--row-bytes 64`, or one access, `--address '128 * lane'`")
    if arguments.address is not None:
        return one_access(arguments, access)
    tile = Layout(arguments.row_bytes, access.width, arguments.pad, arguments.xor)
    served: dict[tuple, list[int]] = {}
    phases = {}
    for walk in chosen_walks(arguments, tile, access):
        for first in layout.starts(tile, walk, access.lanes):
            found = banks.phases(walk.addresses(tile, access.lanes, first), access.name)
            served.setdefault((walk.name, *(p.wavefronts for p in found)), []).append(first)
            phases[walk.name, first] = found
    names = {key: f"{key[0]}, from chunk {banks.spans(firsts)}" for key, firsts in served.items()}
    chosen = {names[key]: phases[key[0], firsts[0]] for key, firsts in served.items()}
    stray = tile.strays()
    common.print_rows([row_of(name, found) for name, found in chosen.items()], arguments)
    if not arguments.json:
        explain(*max(chosen.items(), key=lambda item: sum(p.wavefronts for p in item[1])), access)
        if stray:
            print(f"\nWRONG: {stray}")
    return int(stray is not None)


def access_of(arguments: argparse.Namespace) -> str:
    """`ld.16`, `st.4`, `ldmatrix.x4`."""
    if not arguments.access.startswith("ldmatrix"):
        return f"{'st' if arguments.store else 'ld'}.{arguments.access}"
    if arguments.store:
        raise UsageError("ldmatrix loads: --store does not go with it")
    return "ldmatrix.x4" if arguments.access == "ldmatrix" else arguments.access


def chosen_walks(arguments: argparse.Namespace, tile: Layout, access: banks.Access) -> list[Walk]:
    if arguments.lanes is not None:
        raise UsageError("--lanes goes with --address")
    if arguments.row is None and arguments.chunk is None:
        return layout.walks(tile, access.name)
    return [Walk("as given", arguments.row or "lane", arguments.chunk or "0")]


def one_access(arguments: argparse.Namespace, access: banks.Access) -> int:
    if arguments.row or arguments.chunk or arguments.pad or arguments.xor != "0":
        raise UsageError("--pad, --xor, --row and --chunk belong to a layout: give --row-bytes, or only --address")
    formula, lanes = Formula(arguments.address, ("lane",)), arguments.lanes or access.lanes
    if lanes > access.lanes or (access.name.startswith("ldmatrix") and lanes != access.lanes):
        raise UsageError(f"--lanes {lanes}: {access.name} has {access.lanes}")
    addresses = [formula(lane=lane) if lane < lanes else None for lane in range(access.lanes)]
    found = banks.phases(addresses, access.name)
    common.print_rows([row_of(arguments.address, found)], arguments)
    if not arguments.json:
        explain(arguments.address, found, access)
    return 0


def row_of(name: str, found: list[banks.Phase]) -> dict:
    """A line of the table."""
    return {
        "access": name,
        "wavefronts": sum(p.wavefronts for p in found),
        "without conflicts": banks.ideal(found),
        "by phase": [p.wavefronts for p in found],
    }


def explain(name: str, found: list[banks.Phase], access: banks.Access) -> None:
    """Which lanes collide in an access."""
    if sum(p.wavefronts for p in found) == banks.ideal(found):
        print(f"\nNo conflict: {access.about}.")
        return
    print(f"\nCollisions of '{name}', {access.about}:")
    for phase in found:
        if phase.collisions:
            print(f"  lanes {banks.spans(phase.lanes)}: {phase.wavefronts} wavefronts")
            for line in banks.told(phase):
                print(f"    {line}")
