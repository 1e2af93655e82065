"""Inputs that two short programs can make alike, and what a kernel must make of them.

An element of an input is -1, 0 or 1, chosen by a hash of the operand's number, row and column. Every type holds these
values, and sums of their products, exactly; so an output differs from the expected value by its own rounding at most.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import numpy as np

from lowlevel.dtypes import ELEMENTS
from lowlevel.problems.base import Operand, Problem, bits

VALUES = (-1, 0, 1)
#: Terms of a sum at a time.
_BLOCK = 2**20


def digit(operand, row, column):
    """0, 1 or 2: the index in VALUES of an element. Takes ints, or arrays of uint64."""
    mixed = (operand * 0xC2B2AE3D + row * 0x9E3779B1 + column * 0x85EBCA77) & 0xFFFFFFFF
    mixed = (mixed ^ (mixed >> 15)) * 0x2C1B3C6D & 0xFFFFFFFF
    return (mixed ^ (mixed >> 12)) % 3


@dataclass(frozen=True)
class Formula:
    """C[row][column] = the sum, over k below `terms`, of the product of `factors`: (operand's number, its row, its
    column), each of these two one of the words row, column and k."""

    terms: int
    factors: tuple[tuple[int, str, str], ...]

    def __call__(self, row: int, column: int) -> int:
        total = 0
        for first in range(0, self.terms, _BLOCK):
            at = {"row": row, "column": column, "k": np.arange(first, min(first + _BLOCK, self.terms), dtype=np.uint64)}
            factors = [np.asarray(digit(o, at[r], at[c])).astype(np.int64) - 1 for o, r, c in self.factors]
            total += int(math.prod(factors).sum())
        return total


def formula(problem: Problem) -> Formula | None:
    """How the callers compute an element themselves; None where they are told what to expect."""
    if problem.epilogue != "none" or problem.type.scaled:
        return None
    if problem.operation == "gemm":
        a = ("row", "k") if problem.layout[0] == "N" else ("k", "row")
        b = ("k", "column") if problem.layout[1] == "N" else ("column", "k")
        return Formula(problem.dimensions["k"], ((0, *a), (1, *b)))
    moves = {"copy": (0, "row", "column"), "transpose": (0, "column", "row")}
    return Formula(1, (moves[problem.operation],)) if problem.operation in moves else None


@dataclass(frozen=True)
class Element:
    """An element of the output that the callers check: |C[row][column] - value| <= tolerance."""

    row: int
    column: int
    value: float
    tolerance: float


def elements(problem: Problem) -> list[Element]:
    """The corners of the output and one element between them."""
    rows, columns = problem.operands()[-1].shape
    wanted = [(0, 0), (0, columns - 1), (rows // 2, columns // 2), (rows - 1, 0), (rows - 1, columns - 1)]
    places = list(dict.fromkeys(wanted))
    compute = formula(problem)
    if compute is None:
        return [found for place in places if (found := _from_reference(problem, *place)) is not None]
    roundoff = ELEMENTS[problem.operands()[-1].element].roundoff
    values = [compute(*place) for place in places]
    return [Element(*place, float(v), roundoff * abs(v)) for place, v in zip(places, values, strict=True)]


def _from_reference(problem: Problem, row: int, column: int) -> Element | None:
    """The problem's own float64 reference, where it covers the element."""
    for part in _reference(problem):
        rows, columns = (
            np.arange(extent)[selection]
            for extent, selection in zip(problem.operands()[-1].shape, (part.rows, part.columns), strict=True)
        )
        at = np.flatnonzero(rows == row), np.flatnonzero(columns == column)
        if at[0].size and at[1].size:
            place = at[0][0], at[1][0]
            bound = 0.0 if part.bound is None else float(part.bound[place])
            return Element(row, column, float(part.value[place]), bound)
    return None


def _reference(problem: Problem):
    inputs = {o.name: values(n, o) for n, o in enumerate(problem.operands()) if not o.output}
    return problem.expected(inputs, "integer")


def values(number: int, operand: Operand) -> np.ndarray:
    """An input, without padding."""
    rows, columns = (np.arange(extent, dtype=np.uint64) for extent in operand.shape)
    return np.array(VALUES, operand.dtype)[digit(number, rows[:, None], columns[None, :])]


def encoded(operand: Operand) -> list[int]:
    """The bits of -1, 0 and 1 in the operand's type."""
    return [int(b) for b in bits(np.array(VALUES, operand.dtype))]


def described(problem: Problem) -> dict:
    """The `example` of launch.json."""
    return {
        "inputs": "element [row][column] of operand number i (from 0) has value d - 1 and bits operands[i].bits[d], "
        "where, in unsigned 32-bit arithmetic, h = i * 0xC2B2AE3D + row * 0x9E3779B1 + column * 0x85EBCA77, "
        "h = (h ^ (h >> 15)) * 0x2C1B3C6D, d = (h ^ (h >> 12)) % 3",
        "expect": [dataclasses.asdict(e) for e in elements(problem)],
    }
