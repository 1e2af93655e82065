"""The loop of a CUDA C++ source that became a loop of machine code, found by the compiler's line numbers."""

from __future__ import annotations

import re
from collections.abc import Sequence

_LOOP = re.compile(r"\b(?:for|while)\s*\(|\bdo\s*\{")
#: Of the instructions that some loop of the source covers, the share that the chosen loop has to cover.
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


def main_loop(source: str, lines: Sequence[Sequence[int]]) -> tuple[int, int] | None:
    """The smallest loop statement that covers nearly all of `lines`, which are, for each instruction, the lines of the
    source that it comes from, inner and outer. None where no loop covers any."""
    ranges = loops(source)
    covered = {r: sum(any(r[0] <= line <= r[1] for line in chain) for chain in lines) for r in ranges}
    most = max(covered.values(), default=0)
    if not most:
        return None
    enough = [r for r in ranges if covered[r] >= _SHARE * most]
    return min(enough, key=lambda r: r[1] - r[0])


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
