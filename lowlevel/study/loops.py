"""The loops of a kernel, in PTX and in machine code, and the one of them in which the work is done."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from lowlevel.study.listing import Code, Instruction


@dataclass(frozen=True)
class Loop:
    """members: the indices of its instructions, ascending; what lies between them and is none of them is outside.
    of: how many such loops there are; this is the one with most multiplications."""

    code: Code
    members: tuple[int, ...]
    of: int

    @property
    def instructions(self) -> list[Instruction]:
        return [self.code.instructions[i] for i in self.members]

    @property
    def runs(self) -> list[list[int]]:
        """The members, a list for each piece that is not interrupted."""
        found: list[list[int]] = []
        for index in self.members:
            if found and found[-1][-1] == index - 1:
                found[-1].append(index)
            else:
                found.append([index])
        return found

    @property
    def closing(self) -> Instruction:
        """The last branch backwards; of a loop without one the last instruction."""
        inside = set(self.members)
        back = [i for i in self.members if (target := self.code.targets.get(i)) in inside and target <= i]
        return self.code.instructions[back[-1] if back else self.members[-1]]


def main_loop(code: Code) -> Loop | None:
    """The loop in which the work is done: the smallest that multiplies and also brings what it multiplies, or waits
    for who does. A loop that only walks through a tile is a part of it; one around it, over tiles, is not meant.

    Of several the one with most multiplications, those of tensor cores first, and of equals the shortest, which is the
    one without special cases. Where no loop brings anything, of those that multiply; where none multiplies, the
    longest that holds no other. None where there is no loop.
    """
    every = natural_loops(code)
    busy = [loop for loop in every if any(code.instructions[i].multiplies for i in loop)]
    fed = [loop for loop in busy if any(code.instructions[i].brings for i in loop)]
    inner = _innermost(fed or busy or every)
    if not inner:
        return None

    def weight(loop: frozenset[int]) -> tuple[int, int, int]:
        on_tensor_cores = sum(code.instructions[i].on_tensor_cores for i in loop)
        multiplies = sum(code.instructions[i].multiplies for i in loop)
        return on_tensor_cores, multiplies, -len(loop) if busy else len(loop)

    return Loop(code, tuple(sorted(max(inner, key=weight))), len(inner))


def natural_loops(code: Code) -> list[frozenset[int]]:
    """The indices of each loop's instructions. A loop is what can come back to its first instruction without leaving
    by it; every way into it leads through that one (Aho, Lam, Sethi, Ullman, Compilers, 9.6.6). So a slow path that
    the compiler put behind the kernel and that jumps back into the middle of a loop makes no loop of its own. What
    only waits for itself is none."""
    if not code.instructions:
        return []
    after, before = _neighbours(code)
    reached = _walk([0], after)
    found = []
    for head in sorted(set(code.targets.values()) & reached):
        around = _walk([0], after, without=head)
        back = [i for i in before[head] if i in reached and i not in around]
        body = _walk(back, before, without=head) | {head}
        if back and len(body) > 1:
            found.append(frozenset(body))
    return found


def _neighbours(code: Code) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
    """What may follow each instruction, and what may precede it."""
    count = len(code.instructions)
    after: dict[int, list[int]] = {i: [] for i in range(count)}
    before: dict[int, list[int]] = {i: [] for i in range(count)}
    for index in range(count):
        following = [] if index in code.ends else [index + 1]
        following += [code.targets[index]] if index in code.targets else []
        for other in dict.fromkeys(i for i in following if i < count):
            after[index].append(other)
            before[other].append(index)
    return after, before


def _walk(starts: Iterable[int], ways: Mapping[int, Sequence[int]], without: int | None = None) -> set[int]:
    """All that can be reached from `starts`, which belong to it, on ways that avoid `without`."""
    todo = [i for i in starts if i != without]
    seen = set(todo)
    while todo:
        new = [i for i in ways[todo.pop()] if i not in seen and i != without]
        seen.update(new)
        todo += new
    return seen


def _innermost(loops: Sequence[frozenset[int]]) -> list[frozenset[int]]:
    return [loop for loop in loops if not any(other < loop for other in loops)]
