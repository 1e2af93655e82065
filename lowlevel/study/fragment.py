"""Which lane and register holds which element: the maps of ldmatrix, stmatrix, mma.sync, wmma and wgmma as formulas.

PTX ISA, 'Warp Level Matrix Instructions' and 'Asynchronous Warpgroup Level Matrix Instructions'. For wmma it leaves the
map open; the one here is what sm_80 and sm_90 do.
The formulas are kept as text, so that what is shown is what is tested, against the hardware's own answers too.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import NamedTuple

from lowlevel.errors import UsageError
from lowlevel.study.expression import Formula

LANES, WARPGROUP = 32, 128
#: Columns that a drawing has side by side.
_DRAWN = 32
_NAMES = ("lane", "register", "part")


class Holder(NamedTuple):
    """An element's place in the warp or warpgroup: part counts a register's elements from its low bits up."""

    lane: int
    register: int
    part: int


@dataclass(frozen=True)
class Fragment:
    """A matrix of rows x columns, dealt out over `lanes` of `registers` 32-bit registers with `parts` elements each.

    row, column: formulas over lane, register and part. axes: what rows and columns count. about: one line. lanes: 32,
    or the 128 of a warpgroup. family: the name that many of the same map share, with N for what differs.
    """

    name: str
    about: str
    axes: tuple[str, str]
    rows: int
    columns: int
    registers: int
    parts: int
    row: str
    column: str
    source: str
    lanes: int = LANES
    family: str = ""

    def place(self, lane: int, register: int, part: int) -> tuple[int, int]:
        """(row, column) of what is held there."""
        row, column = self._formulas
        return row(lane=lane, register=register, part=part), column(lane=lane, register=register, part=part)

    @functools.cached_property
    def _formulas(self) -> tuple[Formula, Formula]:
        return Formula(self.row, _NAMES), Formula(self.column, _NAMES)

    def holders(self) -> Iterator[Holder]:
        """Every place, by lane, then register, then part."""
        for lane in range(self.lanes):
            for register in range(self.registers):
                for part in range(self.parts):
                    yield Holder(lane, register, part)

    def holder_of(self) -> dict[tuple[int, int], Holder]:
        """(row, column) -> who holds it."""
        return {self.place(*holder): holder for holder in self.holders()}


def _rows_of_16_bytes(instruction: str, does: str, count: int, trans: bool) -> Fragment:
    """What ldmatrix loads, and what stmatrix stores: the map is one, and the direction the other."""
    down, along = "8 * register + lane / 4", "2 * (lane % 4) + part"
    if trans:
        down, along = "8 * register + 2 * (lane % 4) + part", "lane / 4"
    return Fragment(
        f"{instruction}.x{count}" + (".trans" if trans else ""),
        f"{does} as lanes 0 .. {8 * count - 1} name them, 16 bytes each; a register for each matrix of 8 rows",
        ("row", "column"),
        *(8 * count, 8, count, 2, down, along),
        f"PTX ISA, '{instruction}'",
    )


#: One map for all types: with words of 4 bytes, a register holds rows of m or n 0 .. 7 (lane / 4) by words of k 0 .. 3
#: (lane % 4). A register of A or B more is 4 words of k or 8 rows of m more.
_M8 = "lane / 4 + 8 * (register % 2)"
_N8 = "lane / 4"
_A_WORD = {
    1: "lane % 4 + 4 * (register / 2)",
    2: "2 * (lane % 4) + part + 8 * (register / 2)",
    4: "4 * (lane % 4) + part + 16 * (register / 2)",
}
_B_WORD = {
    1: "lane % 4 + 4 * register",
    2: "2 * (lane % 4) + part + 8 * register",
    4: "4 * (lane % 4) + part + 16 * register",
}


def _mma(name: str, k: int, parts: int, types: str) -> list[Fragment]:
    """A, B and D of an m16n8 product with k steps, `parts` elements of A and B in a register."""
    words = k // parts // 4  # registers along k
    source = f"PTX ISA, 'Matrix Fragments for {'.'.join(name.split('.')[:2])}'"
    return [
        Fragment(f"{name}.a", f"A of {types}", ("m", "k"), 16, k, 2 * words, parts, _M8, _A_WORD[parts], source),
        Fragment(f"{name}.b", f"B of {types}", ("k", "n"), k, 8, words, parts, _B_WORD[parts], _N8, source),
        _sums(name, source),
    ]


def _sums(name: str, source: str) -> Fragment:
    about = "C and D, a sum of 32 bits a register"
    row, column = "lane / 4 + 8 * (register / 2)", "2 * (lane % 4) + register % 2"
    return Fragment(f"{name}.d", about, ("m", "n"), 16, 8, 4, 1, row, column, source)


def _sums16(name: str, source: str) -> Fragment:
    about = "C and D of fp16, two sums a register"
    row, column = "lane / 4 + 8 * register", "2 * (lane % 4) + part"
    return Fragment(f"{name}.d.f16", about, ("m", "n"), 16, 8, 2, 2, row, column, source)


def _wmma() -> list[Fragment]:
    """wmma.m16n16k16 of 16-bit types. .row or .col says how memory is read, and changes nothing here."""
    source = "The PTX ISA leaves the map open; sm_80 and sm_90 load it so"
    repeated = "an f16 fragment has 8 registers, and 4 .. 7 repeat these"
    name, half = "wmma.m16n16k16", "2 * (lane % 4) + part"
    along = (f"{half} + 8 * (register % 2)", f"{half} + 8 * (register / 2)")
    rows = ("lane / 4 + 8 * (register % 2)", "lane / 4 + 8 * (register / 2)")
    sums = ("lane / 4 + 8 * (register / 2 % 2)", "2 * (lane % 4) + register % 2 + 8 * (register / 4)")
    return [
        Fragment(f"{name}.a", f"A of bf16 or f16; {repeated}", ("m", "k"), 16, 16, 4, 2, rows[0], along[1], source),
        Fragment(f"{name}.b", f"B of bf16 or f16; {repeated}", ("k", "n"), 16, 16, 4, 2, along[0], rows[1], source),
        Fragment(f"{name}.d", "C and D, a sum of 32 bits a register", ("m", "n"), 16, 16, 8, 1, *sums, source),
        Fragment(
            f"{name}.d.f16", "C and D of fp16, two sums a register", ("m", "n"), 16, 16, 4, 2, rows[0], along[1], source
        ),
    ]


#: Warp w of the warpgroup has rows 16 w .. 16 w + 15, as an mma.sync of 16 rows has them.
_M64 = "lane / 32 * 16 + lane % 32 / 4"


def _wgmma() -> list[Fragment]:
    """A from registers, and the sums of every N."""
    source = "PTX ISA, 'Register Fragments' of wgmma.mma_async.m64nNk16"
    row, column = f"{_M64} + 8 * (register / 2 % 2)", "8 * (register / 4) + 2 * (lane % 4) + register % 2"
    about = "D, a sum of 32 bits a register; the same for k8 and k32"
    sums = [
        Fragment(
            *(f"wgmma.m64n{n}k16.d", about, ("m", "n"), 64, n, n // 2, 1, row, column, source),
            lanes=WARPGROUP,
            family="wgmma.m64nNk16.d",
        )
        for n in range(8, 257, 8)
    ]
    about = "A of f16 or bf16, where it comes from registers"
    row, column = f"{_M64} + 8 * (register % 2)", _A_WORD[2]
    a = Fragment("wgmma.m64k16.a", about, ("m", "k"), 64, 16, 4, 2, row, column, source, lanes=WARPGROUP)
    return [a, *sums]


def _all() -> list[Fragment]:
    kinds = [(count, trans) for count in (1, 2, 4) for trans in (False, True)]
    found = [_rows_of_16_bytes("ldmatrix", "rows", *kind) for kind in kinds]
    found += [_rows_of_16_bytes("stmatrix", "rows stored", *kind) for kind in kinds]
    found += _mma("mma.m16n8k8", 8, 2, "f16 or bf16") + _mma("mma.m16n8k8.tf32", 8, 1, "tf32")
    found += _mma("mma.m16n8k16", 16, 2, "f16 or bf16")
    found.append(_sums16("mma.m16n8k16", "PTX ISA, 'Matrix Fragments for mma.m16n8k16'"))
    return found + _mma("mma.m16n8k32.s8", 32, 4, "s8 or u8") + _wmma() + _wgmma()


FRAGMENTS: dict[str, Fragment] = {fragment.name: fragment for fragment in _all()}


def find(name: str) -> list[Fragment]:
    """By name, by the beginning of one (`mma.m16n8k16`: its a, b and d), or by a glob. UsageError if there is none.

    Of a family, its name finds all.
    """
    if name in FRAGMENTS:
        return [FRAGMENTS[name]]
    found = [f for f in FRAGMENTS.values() if f.name.startswith(f"{name}.") or fnmatchcase(f.name, name)]
    found = found or [f for f in FRAGMENTS.values() if f.family and f.family == name]
    if not found:
        near = [n for n in families() if name.lower().split(".")[0] in n] or list(families())
        raise UsageError(f"no fragment '{name}'; there are {', '.join(near)}")
    return found


def families() -> dict[str, list[Fragment]]:
    """Every fragment once: by its own name, or by its family's."""
    found: dict[str, list[Fragment]] = {}
    for fragment in FRAGMENTS.values():
        found.setdefault(fragment.family or fragment.name, []).append(fragment)
    return found


def held(fragment: Fragment, lane: int | None = None, register: int | None = None) -> list[dict]:
    """A row for each element that the chosen lane and register hold: lane, register, part, row, column.

    UsageError for a lane or register that the fragment does not have.
    """
    if lane is not None and not 0 <= lane < fragment.lanes:
        who = "a warp" if fragment.lanes == LANES else "a warpgroup"
        raise UsageError(f"no lane {lane}: {who} has lanes 0 to {fragment.lanes - 1}")
    if register is not None and not 0 <= register < fragment.registers:
        raise UsageError(f"no register {register}: {fragment.name} has registers 0 to {fragment.registers - 1}")
    return [
        {**holder._asdict(), "row": place[0], "column": place[1]}
        for holder in fragment.holders()
        if lane in (None, holder.lane) and register in (None, holder.register)
        for place in [fragment.place(*holder)]
    ]


def draw(fragment: Fragment, lane: int | None = None, register: int | None = None) -> str:
    """The matrix with `lane:register` in each cell, a cell for each register; a dot where others than those asked.

    A wide matrix is drawn 32 columns at a time: the first of them, or where a lane or register is asked those that it
    has a part of, and only its rows.
    """
    shown = {(e["row"], e["column"]): f"{e['lane']}:{e['register']}" for e in held(fragment, lane, register)}
    wide = fragment.columns > _DRAWN
    blocks = [range(c, min(c + _DRAWN, fragment.columns)) for c in range(0, fragment.columns, _DRAWN)]
    if not wide or (lane is None and register is None):
        drawn = _grid(fragment, shown, blocks[0], range(fragment.rows))
        rest = f"columns {_DRAWN} to {fragment.columns - 1}: ask for a lane or a register, or --json"
        return f"{drawn}\n{rest}" if wide else drawn
    found = []
    for block in blocks:
        rows = sorted({row for row, column in shown if column in block})
        if rows:
            found.append(_grid(fragment, shown, block, rows))
    return "\n\n".join(found)


def _grid(fragment: Fragment, shown: dict, columns: range, rows: Sequence[int]) -> str:
    """A table of some columns and rows."""
    down, along = _cell(fragment)
    lines = [["", *(_span(column, along) for column in columns[::along])]]
    for row in rows[::down]:
        lines.append([_span(row, down), *(shown.get((row, column), ".") for column in columns[::along])])
    return _aligned(lines)


def describe(fragment: Fragment) -> str:
    """What the fragment is, and its formulas."""
    size = f"{fragment.rows} x {fragment.columns} ({fragment.axes[0]} x {fragment.axes[1]})"
    parts = "one element each" if fragment.parts == 1 else f"{fragment.parts} elements each (part 0 in the low bits)"
    holds = "1 register" if fragment.registers == 1 else f"{fragment.registers} registers"
    who = "a lane" if fragment.lanes == LANES else f"each of {fragment.lanes} lanes, a warpgroup's threads,"
    width = max(map(len, fragment.axes))
    return "\n".join(
        [
            f"{fragment.name}: {fragment.about}",
            f"{size}, {who} holds {holds} of 32 bits, {parts}. {fragment.source}.",
            f"  {fragment.axes[0]:{width}} = {fragment.row}",
            f"  {fragment.axes[1]:{width}} = {fragment.column}",
        ]
    )


def _cell(fragment: Fragment) -> tuple[int, int]:
    """(rows, columns) that the parts of a register cover: neighbours in a row or in a column."""
    if fragment.parts == 1:
        return 1, 1
    first, second = fragment.place(0, 0, 0), fragment.place(0, 0, 1)
    return (1, fragment.parts) if first[0] == second[0] else (fragment.parts, 1)


def _span(first: int, count: int) -> str:
    return str(first) if count == 1 else f"{first}-{first + count - 1}"


def _aligned(lines: Sequence[Sequence[str]]) -> str:
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)
