"""From arrays to a problem: shapes inferred and checked, strides turned into leading dimensions."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lowlevel.catalog.entry import Variant
from lowlevel.errors import UsageError
from lowlevel.interop.arrays import View
from lowlevel.problems.base import Operand, Problem
from lowlevel.problems.gemm import Gemm
from lowlevel.problems.move import Copy, Transpose
from lowlevel.problems.shapes import LARGEST

#: Kernels load and store up to 16 bytes at once.
ALIGNMENT = 16


@dataclass(frozen=True)
class Matrix:
    """Rows and columns, and how many elements apart the rows lie."""

    shape: tuple[int, int]
    leading: int


def matrix(array: np.ndarray | View, where: str) -> Matrix:
    """Host arrays are uploaded without gaps, whatever their strides; device memory must be row-major as it lies."""
    if len(array.shape) != 2:
        raise UsageError(f"{where} has {len(array.shape)} dimensions: kernels take two")
    rows, columns = array.shape
    if min(rows, columns) < 1:
        raise UsageError(f"{where} is {rows} x {columns}: every dimension is at least 1")
    if isinstance(array, np.ndarray):
        return Matrix((rows, columns), columns)
    leading = _leading(array, where)
    if max(rows, columns, leading) > LARGEST:
        raise UsageError(f"{where} is {rows} x {columns}, rows {leading} apart: kernels count to {LARGEST}")
    if array.address % ALIGNMENT:
        raise UsageError(f"{where} starts at {array.address:#x}: kernels take multiples of {ALIGNMENT} bytes")
    return Matrix((rows, columns), leading)


def _leading(view: View, where: str) -> int:
    """Elements from row to row. UsageError for memory that is not row-major."""
    (rows, columns), size = view.shape, view.dtype.itemsize
    by_row, by_column = view.strides
    if rows == 1:  # the stride of a single row means nothing
        by_row = columns * size
    if (columns > 1 and by_column != size) or by_row % size or by_row < columns * size:
        raise UsageError(
            f"{where} has strides of {view.strides} bytes: give it row-major, rows any number of elements apart (a "
            "transposed view is a layout, or a contiguous copy)"
        )
    return by_row // size


def problem_for(variant: Variant, inputs: Sequence[Matrix], output: Matrix | None) -> Problem:
    """The problem that the inputs make, with their leading dimensions and the output's. Raises UsageError where the
    shapes do not fit one another, the operation takes other inputs, or the kernel has no such leading dimension."""
    makers = {"gemm": (2, _gemm), "transpose": (1, _move), "copy": (1, _move)}
    operation = variant.kernel.operation
    if operation not in makers:
        raise UsageError(f"lowlevel.run computes {', '.join(makers)}; {variant.kernel.label} is none of them")
    least, make = makers[operation]
    if len(inputs) < least:
        raise UsageError(f"{variant.kernel.label} takes {least} arrays, {len(inputs)} given")
    problem = make(variant, inputs)
    *wanted, result = problem.operands()
    if len(inputs) != len(wanted):
        names = ", ".join(o.name for o in wanted)
        raise UsageError(f"{variant.kernel.label} takes {names}: {len(wanted)} arrays, {len(inputs)} given")
    for operand, given in zip(wanted, inputs, strict=True):
        _same_shape(operand, given, operand.name)
        if operand.name in ("bias", "residual") and given.leading != operand.leading:
            raise UsageError(f"{operand.name} has rows {given.leading} elements apart: give a contiguous array")
    if output is not None:
        _same_shape(result, output, "out")
        problem = dataclasses.replace(problem, ldc=output.leading)
    for operand in problem.operands():
        _has_leading(variant, operand)
    return problem


def _gemm(variant: Variant, inputs: Sequence[Matrix]) -> Gemm:
    a, b = inputs[:2]
    m, k = a.shape if variant.layout[0] == "N" else a.shape[::-1]
    also_k, n = b.shape if variant.layout[1] == "N" else b.shape[::-1]
    if k != also_k:
        raise UsageError(
            f"A is {_text(a.shape)} and B {_text(b.shape)}: in layout {variant.layout} K is {k} in A and {also_k} in B"
        )
    return Gemm(m, n, k, variant.type, variant.layout, a.leading, b.leading, epilogue=variant.epilogue)


def _move(variant: Variant, inputs: Sequence[Matrix]) -> Copy | Transpose:
    made = {"transpose": Transpose, "copy": Copy}[variant.kernel.operation]
    return made(*inputs[0].shape, variant.type, inputs[0].leading)


def _same_shape(operand: Operand, given: Matrix, where: str) -> None:
    if given.shape != operand.shape:
        raise UsageError(f"{where} is {_text(given.shape)}, this call needs {_text(operand.shape)}")


def _has_leading(variant: Variant, operand: Operand) -> None:
    """A kernel that is told no leading dimension reads its operand as one piece."""
    told = {name for step in variant.kernel.steps for name in step.params}
    if operand.leading != operand.shape[1] and not told & {f"ld{operand.name.lower()}", f"map_{operand.name}"}:
        raise UsageError(f"{variant.kernel.label} takes {operand.name} as one piece: give a contiguous array")


def _text(shape: tuple[int, int]) -> str:
    return f"{shape[0]} x {shape[1]}"
