"""Operations that only move elements, `transpose` and `copy`: the output's bits are the input's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from lowlevel.dtypes import Type
from lowlevel.errors import UsageError
from lowlevel.problems.base import Expected, Operand, integers, normal
from lowlevel.tensormap import TensorMap


@dataclass(frozen=True)
class Move:
    """An m x n array A read once, and an output C written once."""

    m: int
    n: int
    type: Type
    lda: int = 0
    ldc: int = 0
    layout: str = ""
    epilogue: str = "none"
    operation = "copy"
    whole = True
    flops = 0

    def __post_init__(self):
        if min(self.m, self.n) < 1:
            raise UsageError(f"shape {self.label}: every dimension is at least 1")
        for name, columns in (("lda", self.n), ("ldc", self._output_shape()[1])):
            given = getattr(self, name)
            if given and given < columns:
                raise UsageError(f"{name}={given} is less than the row it strides over, {columns}")
            object.__setattr__(self, name, given or columns)

    def _output_shape(self) -> tuple[int, int]:
        return (self.m, self.n)

    @property
    def label(self) -> str:
        return f"{self.m}x{self.n}"

    @property
    def bytes(self) -> int:
        return sum(operand.payload for operand in self.operands())

    @property
    def dimensions(self) -> Mapping[str, int]:
        return {name: getattr(self, name) for name in ("m", "n", "lda", "ldc")}

    def operands(self) -> tuple[Operand, ...]:
        return (
            Operand("A", self.type.operand, (self.m, self.n), self.lda),
            Operand("C", self.type.output, self._output_shape(), self.ldc, output=True),
        )

    def scalars(self) -> Mapping[str, np.generic]:
        sizes = {"M": np.int32(self.m), "N": np.int32(self.n), "lda": np.int32(self.lda), "ldc": np.int32(self.ldc)}
        return {**sizes, "bytes": np.int64(self.operands()[0].nbytes)}

    def inputs(self, seed: int, kind: str = "normal") -> Mapping[str, np.ndarray]:
        a = self.operands()[0]
        values = normal(a.shape, (seed, 0)) if kind == "normal" else integers(a.shape, (seed, 0), -128, 127)
        return {"A": values.astype(a.dtype, copy=False)}

    def expected(self, inputs: Mapping[str, np.ndarray], kind: str = "normal") -> Iterator[Expected]:  # noqa: ARG002
        yield Expected(slice(None), slice(None), self.result(inputs["A"]), None)

    def result(self, a: np.ndarray) -> np.ndarray:
        return a

    def tensor_map(self, operand: str, config: Mapping[str, int]) -> TensorMap:
        """A tile of the configuration, unswizzled."""
        found = next(o for o in self.operands() if o.name == operand)
        strides = (found.leading * found.dtype.itemsize,)
        return TensorMap(found.element, found.shape, strides, (config["BM"], config["BN"]))


@dataclass(frozen=True)
class Copy(Move):
    """C[m][n] = A[m][n]."""


@dataclass(frozen=True)
class Transpose(Move):
    """C[n][m] = A[m][n]."""

    operation = "transpose"

    def _output_shape(self) -> tuple[int, int]:
        return (self.n, self.m)

    def result(self, a: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(a.T)
