"""What every operation says of itself. `gemm`, `transpose`, `copy` and `probe` implement it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from lowlevel.dtypes import ELEMENTS, Type
from lowlevel.problems.blocks import drawn

if TYPE_CHECKING:
    from lowlevel.tensormap import TensorMap


@dataclass(frozen=True)
class Operand:
    """One array of a problem in device memory: `shape` in elements, row-major, rows `leading` elements apart.

    The elements of a row beyond shape[1] are padding: poisoned on input, and not to be written on output.
    aligned: the first element lies at a multiple of 16 bytes.
    """

    name: str
    element: str
    shape: tuple[int, int]
    leading: int
    output: bool = False
    aligned: bool = True

    @property
    def dtype(self) -> np.dtype:
        return ELEMENTS[self.element].numpy

    @property
    def nbytes(self) -> int:
        """Bytes in memory, padding included."""
        return self.shape[0] * self.leading * self.dtype.itemsize

    @property
    def payload(self) -> int:
        """Bytes of the elements themselves."""
        return self.shape[0] * self.shape[1] * self.dtype.itemsize


@dataclass(frozen=True)
class Expected:
    """The reference of a part of the output, C[rows][:, columns].

    value: float64, or the output's own type where bound is None, which asks for the same bits.
    bound: the allowed |error| of each element.
    """

    rows: np.ndarray | slice
    columns: np.ndarray | slice
    value: np.ndarray
    bound: np.ndarray | None


class Problem(Protocol):
    """One operation at one shape and type. Frozen and hashable; `label` is `257x129x65` or the like."""

    operation: str
    type: Type
    layout: str
    epilogue: str

    @property
    def label(self) -> str: ...
    @property
    def flops(self) -> int: ...

    @property
    def bytes(self) -> int:
        """The fewest bytes that device memory must move: each input read once, each output written once."""

    @property
    def dimensions(self) -> Mapping[str, int]:
        """The results file's m, n, k, lda, ldb, ldc, as far as the operation has them."""

    def operands(self) -> tuple[Operand, ...]: ...

    def inputs(self, seed: int, kind: str = "normal") -> Mapping[str, np.ndarray]:
        """Host arrays in the operands' shapes, without padding. kind: `normal` for N(0,1), or `integer` for small
        integers, whose products and sums every type holds exactly."""

    def expected(self, inputs: Mapping[str, np.ndarray], kind: str = "normal") -> Iterator[Expected]:
        """The reference, part by part; `whole` says whether the parts cover every element."""

    @property
    def whole(self) -> bool: ...

    def scalars(self) -> Mapping[str, np.generic]:
        """Values of the scalar parameters that kernels may name: M, N, K, lda, ... as numpy scalars."""

    def tensor_map(self, operand: str, config: Mapping[str, int]) -> TensorMap:
        """The map through which a kernel of this configuration sees `operand`; UsageError when there is none."""


KINDS = ("normal", "integer")


def normal(shape: tuple[int, int], seed: tuple[int, ...]) -> np.ndarray:
    """float32 N(0,1), the same for the same seed."""
    return drawn(shape, seed, np.dtype(np.float32), standard_normal)


def standard_normal(generator: np.random.Generator, count: int) -> np.ndarray:
    return generator.standard_normal(count, dtype=np.float32)


def integers(shape: tuple[int, int], seed: tuple[int, ...], low: int, high: int, dtype=np.int32) -> np.ndarray:
    """Uniform in low..high, both included, in a type that holds them."""
    dtype = np.dtype(dtype)
    return drawn(shape, seed, dtype, lambda generator, count: uniform(generator, count, low, high).astype(dtype))


def uniform(generator: np.random.Generator, count: int, low: int, high: int) -> np.ndarray:
    return generator.integers(low, high, count, dtype=np.int32, endpoint=True)


def bits(array: np.ndarray) -> np.ndarray:
    """The same memory as unsigned integers of the elements' size."""
    return array.view(f"u{array.dtype.itemsize}")
