"""The main loop of a kernel, found in PTX and in SASS by its backward branch."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

#: What multiplies matrices; address arithmetic (IMAD, mad) is not meant.
_SASS_MULTIPLIES = ("HMMA", "IMMA", "DMMA", "BMMA", "QMMA", "HGMMA", "IGMMA", "QGMMA", "FFMA", "DFMA")
_PTX_MULTIPLIES = ("fma.", "mma.", "wmma.mma", "wgmma.mma")

_FILE_LINE = re.compile(r'"([^"]+)", line (\d+)')
_SASS = re.compile(r"/\*[0-9a-f]+\*/\s+((?:@!?U?P[\dT]+\s+)?([A-Z][A-Z0-9_.a-z]*)[^;]*);")
_SASS_TARGET = re.compile(r"`\((\.L\w+)\)")
_LABEL = re.compile(r"^\s*([.$\w]+):")
_PTX = re.compile(r"^\s*(@!?%\w+\s+)?([a-z][\w.:]*)\b")
_PTX_TARGET = re.compile(r"\bbra(?:\.uni)?\s+([$\w]+)")


@dataclass(frozen=True)
class Instruction:
    """text: as it is shown. at: the line of the listing. target: the label that it may branch to, if it is a branch.
    lines: of the kernel's source file, the innermost first."""

    text: str
    opcode: str
    multiplies: bool
    at: int
    target: str = ""
    lines: tuple[int, ...] = ()


@dataclass(frozen=True)
class Loop:
    """A loop's instructions, and of how many loops that multiply it is the one with most multiplications."""

    instructions: tuple[Instruction, ...]
    first: int
    last: int
    of: int

    @property
    def multiplies(self) -> int:
        return sum(i.multiplies for i in self.instructions)


@dataclass(frozen=True)
class Code:
    """A kernel's instructions in order, and the index of the one that follows each label."""

    instructions: tuple[Instruction, ...]
    labels: dict[str, int]


def read_sass(listing: str, source: str = "") -> Code:
    """One function's listing (`sass.function_text`). source: the name of the file whose line numbers are kept."""
    found: list[Instruction] = []
    labels: dict[str, int] = {}
    chain: list[int] = []
    fresh = True
    for at, line in enumerate(listing.splitlines()):
        if "//##" in line:
            chain = [] if fresh else chain
            fresh = False
            places = _FILE_LINE.findall(line)[:1]
            chain += [int(number) for path, number in places if path.rsplit("/", 1)[-1] == source]
        elif match := _SASS.search(line):
            fresh = True
            text, opcode = " ".join(match[1].split()), match[2]
            branch = _SASS_TARGET.search(line) if opcode.startswith("BRA") else None
            multiplies = opcode.split(".")[0] in _SASS_MULTIPLIES
            found.append(Instruction(text, opcode, multiplies, at, branch[1] if branch else "", tuple(chain)))
        elif match := _LABEL.match(line):
            labels[match[1]] = len(found)
    return Code(tuple(found), labels)


def read_ptx(text: str) -> Code:
    """A module's text, or one kernel's. Comments and directives are no instructions."""
    found: list[Instruction] = []
    labels: dict[str, int] = {}
    for at, line in enumerate(text.splitlines()):
        code = line.split("//")[0].strip()
        if label := _LABEL.match(code):
            labels[label[1]] = len(found)
            code = code[label.end() :].strip()
        match = _PTX.match(code)
        if not match or not code.endswith((";", "{", ",")):
            continue
        branch = _PTX_TARGET.search(code)
        multiplies = match[2].startswith(_PTX_MULTIPLIES)
        found.append(Instruction(code, match[2], multiplies, at, branch[1] if branch else ""))
    return Code(tuple(found), labels)


def main_loop(code: Code) -> Loop | None:
    """The loop in which the work is done: of those that multiply and hold no other that does, the one with most
    multiplications, and of equals the shortest, which is the one without special cases. Where nothing multiplies, the
    longest loop that holds no other. None where there is no loop."""
    ranges = _ranges(code)
    busy = [r for r in ranges if any(i.multiplies for i in code.instructions[r[0] : r[1] + 1])]
    inner = _innermost(busy or ranges)
    if not inner:
        return None

    def weight(span: tuple[int, int]) -> tuple[int, int]:
        size = span[1] - span[0]
        count = sum(i.multiplies for i in code.instructions[span[0] : span[1] + 1])
        return count, -size if busy else size

    first, last = max(inner, key=weight)
    return Loop(code.instructions[first : last + 1], first, last, len(inner))


def _ranges(code: Code) -> list[tuple[int, int]]:
    """(first, last) of every loop; one that only waits at the end of the program is none."""
    found: dict[int, int] = {}
    for index, instruction in enumerate(code.instructions):
        target = code.labels.get(instruction.target, index)
        if target < index:
            found[target] = max(index, found.get(target, 0))
    return list(found.items())


def _innermost(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    return [r for r in ranges if not any(o != r and r[0] <= o[0] and o[1] <= r[1] for o in ranges)]
