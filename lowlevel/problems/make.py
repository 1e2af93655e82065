"""From a variant and a shape to the problem that it computes."""

from __future__ import annotations

from collections.abc import Sequence

from lowlevel.catalog.entry import Variant
from lowlevel.dtypes import WORDS
from lowlevel.errors import UsageError
from lowlevel.problems.base import Problem
from lowlevel.problems.ceiling import Ceiling
from lowlevel.problems.gemm import Gemm
from lowlevel.problems.move import Copy, Transpose
from lowlevel.problems.probe import Probe


def make_problem(variant: Variant, shape: Sequence[int] = ()) -> Problem:
    """`shape` is M, N, K for a gemm, M, N for what moves elements, one number for a cube or square, and nothing for
    a probe, whose size is its own. A probe of words is one of the launch layer, of other types one of arithmetic.
    Raises UsageError for another count of numbers."""
    operation = variant.kernel.operation
    if operation == "probe":
        return Probe(variant.kernel.rung) if variant.type == WORDS else Ceiling(variant.type)
    if operation == "gemm":
        return Gemm(*_numbers(variant, shape, 3), variant.type, variant.layout, epilogue=variant.epilogue)
    moves = {"transpose": Transpose, "copy": Copy}
    return moves[operation](*_numbers(variant, shape, 2), variant.type)


def default_shape(variant: Variant) -> tuple[int, ...]:
    """The shape of what is said of a kernel without one."""
    return () if variant.kernel.operation == "probe" else (4096,)


def _numbers(variant: Variant, shape: Sequence[int], count: int) -> Sequence[int]:
    """One number is a cube or a square."""
    if len(shape) == 1:
        return tuple(shape) * count
    if len(shape) != count:
        form = "MxNxK" if count == 3 else "MxN"
        text = "x".join(map(str, shape))
        raise UsageError(f"{variant.kernel.operation} takes shapes {form} or a single number, not '{text}'")
    return shape
