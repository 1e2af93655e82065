"""Copies of operands for TMA, which takes rows at multiples of 16 bytes only.

An operand with other rows, or none that begins there, is copied by the kernel `repack` (cu/include/repack.cuh) before
the kernel that multiplies, into rows that are padded. The copies lie at the start of the workspace; what else a kernel
keeps there comes behind them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from lowlevel.catalog.entry import Config, Dim3, Launch, Rule, Sized, Step
from lowlevel.catalog.rules import ceil_div
from lowlevel.hardware import Limits
from lowlevel.problems.base import Operand, Problem

#: What is copied, where it has to be.
_INPUTS = ("A", "B")
_ROW_ALIGNMENT, _COPY_ALIGNMENT = 16, 256
#: cu/include/repack.cuh: threads of a block, each of which writes 16 bytes.
_THREADS = 256


@dataclass(frozen=True)
class Copy:
    """`operand` as it lies `offset` bytes from the start of the workspace."""

    operand: Operand
    offset: int


def tma_takes(operand: Operand) -> bool:
    """Whether every row begins at a multiple of 16 bytes."""
    return operand.aligned and operand.leading * operand.dtype.itemsize % _ROW_ALIGNMENT == 0


def copies(problem: Problem) -> Mapping[str, Copy]:
    """The copies that a problem needs, by their operands' names."""
    found, offset = {}, 0
    for operand in problem.operands():
        if operand.name not in _INPUTS or tma_takes(operand):
            continue
        size = operand.dtype.itemsize
        leading = ceil_div(operand.shape[1] * size, _ROW_ALIGNMENT) * _ROW_ALIGNMENT // size
        found[operand.name] = Copy(replace(operand, leading=leading, aligned=True), offset)
        offset += ceil_div(found[operand.name].operand.nbytes, _COPY_ALIGNMENT) * _COPY_ALIGNMENT
    return found


def as_fetched(problem: Problem, name: str) -> Operand:
    """An operand, or the copy that is in its place."""
    if name in (there := copies(problem)):
        return there[name].operand
    return next(o for o in problem.operands() if o.name == name)


def bytes_of_copies(config: Config, problem: Problem, limits: Limits) -> int:  # noqa: ARG001
    """Bytes of workspace that the copies take, a multiple of 256."""
    return sum(ceil_div(c.operand.nbytes, _COPY_ALIGNMENT) * _COPY_ALIGNMENT for c in copies(problem).values())


def behind_copies(own: Sized) -> Sized:
    """Bytes of workspace for the copies, and of what the kernel keeps there itself."""

    def both(config: Config, problem: Problem, limits: Limits) -> int:
        return bytes_of_copies(config, problem, limits) + own(config, problem, limits)

    return both


def needs_copy(name: str) -> Callable[[Problem], bool]:
    """Whether a problem's operand has to be copied."""
    return lambda problem: name in copies(problem)


def chunks(name: str) -> Sized:
    """A block for each 256 chunks of 16 bytes of an operand's copy."""

    def grid(config: Config, problem: Problem, limits: Limits) -> Dim3:  # noqa: ARG001
        return (ceil_div(as_fetched(problem, name).nbytes, _ROW_ALIGNMENT * _THREADS), 1, 1)

    return grid


def _step(name: str) -> Step:
    params = (name, f"packed_{name}", f"rows_{name}", f"columns_{name}", f"ld{name.lower()}", f"ld_packed_{name}")
    launch = Launch(block=_THREADS, grid=chunks(name), workspace=bytes_of_copies)
    return Step("repack", params, launch, when=needs_copy(name))


#: What precedes a kernel that takes any rows.
REPACK = tuple(_step(name) for name in _INPUTS)

#: What a kernel says that has no copies made.
TMA_ROWS = Rule(
    lambda problem: not copies(problem), "TMA takes rows at multiples of 16 bytes: lda and ldb must be, in bytes"
)
