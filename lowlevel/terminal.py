"""Tables on a terminal: as wide as it is, where a table would be wider."""

from __future__ import annotations

import re
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TextIO

from tabulate import tabulate

#: After what a cell may be broken: words and the numbers of a configuration, and if that is not enough, parts of names.
_BREAKS = (" ,", " ,/_:;[")
_GAP = "  "


def width(out: TextIO) -> int | None:
    """Columns of the terminal that `out` is. None for a file or a pipe, which hold a table of any width."""
    return shutil.get_terminal_size().columns if out.isatty() else None


def fitted(columns: Mapping[str, Sequence[str]], width: int | None, right: Collection[str] = ()) -> str:
    """A table of these columns, heading -> cells, as tabulate makes it. One that is wider than `width` is made to fit:

    - columns that no row fills are left out;
    - what all rows have in common is said once below the table, unless it is the first column, which names the rows;
    - the widest columns are broken over lines, after spaces and commas, so that numbers stay whole.

    The next step is taken only where the one before is not enough. right: headings of columns of numbers. A table whose
    longest words are too wide stays so.
    """
    align = ["right" if heading in right else "left" for heading in columns]
    text = tabulate(columns, headers="keys", colalign=align, disable_numparse=True) if columns else ""
    if width is None or _widest(text) <= width:
        return text
    columns = {heading: cells for heading, cells in columns.items() if any(cells)}
    alike = {}
    if _needs(columns) > width:
        alike = {h: c[0] for h, c in list(columns.items())[1:] if len(c) > 1 and len(set(c)) == 1}
    columns = {heading: cells for heading, cells in columns.items() if heading not in alike}
    lines = list(_lines(columns, _shares(columns, width), right))
    if alike:
        note = "all: " + "; ".join(f"{heading} {cell}" for heading, cell in alike.items())
        lines += ["", *wrapped(note, width)]
    return "\n".join(lines)


def wrapped(text: str, width: int, breaks: str = _BREAKS[0]) -> list[str]:
    """Lines of at most `width`, broken after one of `breaks`; a longer word has a line of its own."""
    lines = []
    for line in text.splitlines() or [""]:
        lines.append("")
        for piece in _pieces(line, breaks):
            if lines[-1] and len(f"{lines[-1]}{piece}".rstrip()) > width:
                lines.append("")
            lines[-1] += piece
    return [line.rstrip() for line in lines]


def _pieces(line: str, breaks: str) -> list[str]:
    """What is not broken: up to the next of `breaks`, with those that follow on it."""
    marks = re.escape(breaks)
    return re.findall(f"[^{marks}]*[{marks}]+|[^{marks}]+", line)


def _widest(text: str) -> int:
    return max(map(len, text.splitlines()), default=0)


def _needs(columns: Mapping[str, Sequence[str]]) -> int:
    """How wide a table is that is not broken."""
    return sum(_widest("\n".join([h, *cells])) for h, cells in columns.items()) + len(_GAP) * (len(columns) - 1)


def _shares(columns: Mapping[str, Sequence[str]], width: int) -> dict[str, list[list[str]]]:
    """Each column's heading and cells as lines: the widest of those that can be broken give way, one by one."""
    texts = {heading: [heading, *cells] for heading, cells in columns.items()}
    wide = {heading: _widest("\n".join(cells)) for heading, cells in texts.items()}
    room = width - len(_GAP) * (len(columns) - 1)
    for breaks in _BREAKS:
        least = {h: max(_widest("\n".join(wrapped(c, 1, breaks))) for c in cells) for h, cells in texts.items()}
        while sum(wide.values()) > room and (broken := [h for h in wide if wide[h] > least[h]]):
            wide[max(broken, key=wide.__getitem__)] -= 1
        if sum(wide.values()) <= room:
            break
    return {heading: [wrapped(cell, wide[heading], breaks) for cell in cells] for heading, cells in texts.items()}


def _lines(
    columns: Mapping[str, Sequence[str]], cells: Mapping[str, list[list[str]]], right: Collection[str]
) -> Iterator[str]:
    """The lines of a table in tabulate's plain style, without the room that it leaves beside headings."""
    wide = {heading: max(_widest("\n".join(cell)) for cell in cells[heading]) for heading in columns}
    for number, row in enumerate(zip(*cells.values(), strict=True)):
        for line in range(max(map(len, row))):
            parts = [cell[line] if line < len(cell) else "" for cell in row]
            padded = [
                part.rjust(wide[h]) if h in right else part.ljust(wide[h]) for h, part in zip(wide, parts, strict=True)
            ]
            yield _GAP.join(padded).rstrip()
        if not number:
            yield _GAP.join("-" * n for n in wide.values())
