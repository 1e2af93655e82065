"""What every operation says of itself. `gemm`, `transpose`, `copy` and `probe` implement it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from lowlevel.dtypes import Type


@dataclass(frozen=True)
class Operand:
    """One array of a problem in device memory: `shape` in elements, row-major, rows `leading` elements apart.

    The elements of a row beyond shape[1] are padding: poisoned on input, and not to be written on output.
    """

    name: str
    element: str
    shape: tuple[int, ...]
    leading: int
    output: bool = False

    @property
    def nbytes(self) -> int: ...


@dataclass(frozen=True)
class Expected:
    """The reference of some part of the output: `index` selects it (rows, columns), `value` is float64 (or the
    exact integers), `bound` the allowed |error| of each element, zero where the result must be exact."""

    index: tuple
    value: np.ndarray
    bound: np.ndarray


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

    def operands(self) -> tuple[Operand, ...]: ...

    def inputs(self, seed: int, kind: str = "normal") -> Mapping[str, np.ndarray]:
        """Host arrays, in the operands' shapes (without padding). kind: `normal` or `integer` (exact in any type)."""

    def scalars(self) -> Mapping[str, np.generic]:
        """Values of the scalar parameters that kernels may name: M, N, K, lda, ... as numpy scalars."""

    def tensor_map(self, operand: str, config: Mapping[str, int]):
        """The TensorMap through which a kernel of this configuration sees `operand`; UsageError when none exists."""
