"""Shape classes: products that one tuned choice serves."""

from __future__ import annotations

import math

from lowlevel.dtypes import ELEMENTS
from lowlevel.hardware import Limits
from lowlevel.problems.gemm import Gemm

#: Sides of the tile in which a class counts: neither the smallest nor the largest that kernels here use.
UNIT = 128


def shape_class(problem: Gemm, limits: Limits) -> str:
    """`tiles 1-2 an SM, k 1024-4096, square, whole rows`: four facts on which the best tile depends.

    - Tiles of 128 x 128 an SM, in powers of two from 1/4 to 16: how many waves there are, and so how
      much a badly filled last one costs.
    - k below 256, to 1024, to 4096, to 16384, above: how long the loop is beside what surrounds it.
    - m and n within a factor of four (square), else tall (m larger) or wide.
    - Whether every row of A, B and C is a multiple of 16 bytes: if not, kernels copy in smaller pieces.
    """
    tiles = math.ceil(problem.m / UNIT) * math.ceil(problem.n / UNIT) / limits.sms
    parts = (
        f"tiles {_band(tiles, (0.25, 0.5, 1, 2, 4, 8, 16))} an SM",
        f"k {_band(problem.k, (256, 1024, 4096, 16384))}",
    )
    return ", ".join((*parts, _aspect(problem), "whole rows" if _whole_rows(problem) else "broken rows"))


def distance(a: tuple[int, int, int], b: tuple[int, int, int]) -> float:
    """How far apart two shapes are: the sum over m, n, k of |log2 of the ratio|."""
    return sum(abs(math.log2(x / y)) for x, y in zip(a, b, strict=True))


def _band(value: float, edges: tuple[float, ...]) -> str:
    """Where a value lies between edges, the upper one included: `to 0.25`, `1-2`, `over 16`."""
    below = [edge for edge in edges if edge < value]
    if not below:
        return f"to {edges[0]:g}"
    above = [edge for edge in edges if edge >= value]
    return f"{below[-1]:g}-{above[0]:g}" if above else f"over {edges[-1]:g}"


def _aspect(problem: Gemm) -> str:
    if problem.m > 4 * problem.n:
        return "tall"
    return "wide" if problem.n > 4 * problem.m else "square"


def _whole_rows(problem: Gemm) -> bool:
    """Whether rows lie a multiple of 16 bytes apart."""
    into, out = ELEMENTS[problem.type.operand].bytes, ELEMENTS[problem.type.output].bytes
    return problem.lda * into % 16 == problem.ldb * into % 16 == problem.ldc * out % 16 == 0
