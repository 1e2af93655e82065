"""The loop of a CUDA C++ source or of its headers that became a loop of machine code, found by the compiler's line
numbers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

#: (file, line), both as the compiler says them, without the folder.
Place = tuple[str, int]

_LOOP = re.compile(r"\b(?:for|while)\s*\(|\bdo\s*\{")
#: Of the work that some loop of the source covers, the share that the chosen loop has to cover.
_SHARE = 0.8


def loops(source: str) -> list[tuple[int, int]]:
    """(first, last) lines, from 1, of every loop statement, comments aside."""
    text = _without_comments(source)
    found = []
    for match in _LOOP.finditer(text):
        start = match.start()
        end = _end_of_block(text, match.end() - 1) if text[match.end() - 1] == "{" else _end(text, match.end() - 1)
        found.append((text.count("\n", 0, start) + 1, text.count("\n", 0, end) + 1))
    return found


def main_loop(
    sources: Mapping[str, str], closing: Sequence[Place], work: Sequence[Sequence[Place]]
) -> tuple[str, int, int] | None:
    """(file, first, last line) of the loop statement that a loop of machine code comes from.

    sources: the text of the kernel and of its headers. closing: where the branch that closes the machine's loop comes
    from, inner places first: it belongs to the statement's own line. work: the same for each instruction that the loop
    is there for. The smallest statement around the branch that covers nearly all of the work; where none does, the
    smallest that covers nearly as much of it as any. None where no loop covers any.
    """
    ranges = [(file, *span) for file, text in sources.items() for span in loops(text)]

    def around(place: Place) -> list[tuple[str, int, int]]:
        holding = [r for r in ranges if r[0] == place[0] and r[1] <= place[1] <= r[2]]
        return sorted(holding, key=_lines)

    covered = Counter(r for places in work for r in dict.fromkeys(r for place in places for r in around(place)))
    most = max(covered.values(), default=0)
    if not most:
        return None
    closed = [r for place in closing for r in around(place) if covered[r] >= _SHARE * most]
    if closed:
        return closed[0]
    enough = [r for r in ranges if covered[r] >= _SHARE * most]
    return min(enough, key=lambda r: (covered[r], _lines(r)))


def _lines(span: tuple[str, int, int]) -> int:
    return span[2] - span[1]


def _without_comments(source: str) -> str:
    """The same text with comments and strings blanked, so that offsets and lines stay."""
    pattern = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.DOTALL)
    return pattern.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), source)


def _end(text: str, parenthesis: int) -> int:
    """Where the statement ends whose condition opens at `parenthesis`."""
    at = _closing(text, parenthesis, "(", ")") + 1
    while at < len(text) and text[at].isspace():
        at += 1
    if nested := _LOOP.match(text, at):
        return _end(text, nested.end() - 1) if text[nested.end() - 1] == "(" else _end_of_block(text, nested.end() - 1)
    if text[at : at + 1] == "#":  # a pragma before the nested loop
        return _end_after_line(text, at)
    if text[at : at + 1] == "{":
        return _end_of_block(text, at)
    end = text.find(";", at)
    return end if end >= 0 else len(text) - 1


def _end_after_line(text: str, at: int) -> int:
    line_end = text.find("\n", at)
    nested = _LOOP.search(text, line_end)
    return _end(text, nested.end() - 1) if nested else line_end


def _end_of_block(text: str, brace: int) -> int:
    return _closing(text, brace, "{", "}")


def _closing(text: str, at: int, opens: str, closes: str) -> int:
    depth = 0
    for index in range(at, len(text)):
        depth += (text[index] == opens) - (text[index] == closes)
        if depth == 0:
            return index
    return len(text) - 1
