"""Operand sets in turn, so that no call finds its data in the L2 cache because the call before left it there."""

from __future__ import annotations

from lowlevel.device.protocol import Buffer
from lowlevel.errors import DeviceError
from lowlevel.hardware import Limits
from lowlevel.problems.base import Problem
from lowlevel.verify import Checker

#: Between two uses of a set, this many times the L2's size of other data passes through it.
L2_FACTOR = 2
#: No more sets than this: graphs launch each at least once.
MOST_SETS = 256


def sets_needed(problem: Problem, limits: Limits) -> int:
    """Operand sets such that the others together exceed twice the L2; at least two."""
    return min(MOST_SETS, 2 + L2_FACTOR * limits.l2_bytes // problem.bytes)


class Rotation:
    """The checker's own operand set, and copies of it. `cache` is what a row says of them."""

    def __init__(self, checker: Checker):
        problem, device = checker.problem, checker.device
        self.sets: list[dict[str, Buffer]] = [checker.buffers]
        self._owned: list[dict[str, Buffer]] = []
        wanted = sets_needed(problem, device.limits)
        try:
            while len(self.sets) < wanted:
                self._add(checker)
        except DeviceError:  # memory ran out: fewer sets, and the row says that they were not enough
            device.synchronize()
        self.cache = "rotated" if len(self.sets) == wanted else f"rotated {len(self.sets)} of {wanted}"
        device.synchronize()

    def _add(self, checker: Checker) -> None:
        made: dict[str, Buffer] = {}
        try:
            for operand in checker.problem.operands():
                made[operand.name] = checker.device.allocate(operand.nbytes)
                made[operand.name].copy_from(checker.buffers[operand.name])
        except DeviceError:
            for buffer in made.values():
                buffer.free()
            raise
        self.sets.append(made)
        self._owned.append(made)

    def close(self) -> None:
        for buffers in self._owned:
            for buffer in buffers.values():
                buffer.free()
        self._owned = []
