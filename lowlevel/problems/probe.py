"""Probes of the launch layer: integer words in, integer words out, each with its exact expectation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from lowlevel.dtypes import WORDS, Type
from lowlevel.errors import UsageError
from lowlevel.problems.base import Expected, Operand, integers
from lowlevel.tensormap import TensorMap


def _plus_total(a: np.ndarray) -> np.ndarray:
    return a + a.sum(dtype=np.int32)


def _neighbour(a: np.ndarray) -> np.ndarray:
    """Blocks of 256 words in clusters of four: each gets its right neighbour's."""
    return np.roll(a.reshape(-1, 4, 256), -1, axis=1).reshape(a.shape)


def _reversed(a: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(a.reshape(-1, 16384)[:, ::-1]).reshape(a.shape)


@dataclass(frozen=True)
class About:
    """A probe's default size (rows, columns) and what its kernel must make of A."""

    shape: tuple[int, int]
    result: Callable[[np.ndarray], np.ndarray]


PROBES = {
    "grid_barrier": About((1, 300_007), _plus_total),
    "cluster_shared": About((1, 64 * 1024), _neighbour),
    "programmatic_pair": About((1, 65_537), lambda a: 2 * (a + 1)),
    "large_shared": About((1, 8 * 16384), _reversed),
    "tensor_map": About((200, 136), lambda a: a),
}


@dataclass(frozen=True)
class Probe:
    """C = f(A), int32 words of the probe's default size; wraparound is meant."""

    name: str
    type: Type = WORDS
    layout: str = ""
    epilogue: str = "none"
    operation = "probe"
    whole = True
    flops = 0

    def __post_init__(self):
        if self.name not in PROBES:
            raise UsageError(f"no probe '{self.name}'; there are: {', '.join(PROBES)}")

    @property
    def shape(self) -> tuple[int, int]:
        return PROBES[self.name].shape

    @property
    def label(self) -> str:
        return "x".join(map(str, self.shape))

    @property
    def bytes(self) -> int:
        return 2 * 4 * self.shape[0] * self.shape[1]

    @property
    def dimensions(self) -> Mapping[str, int]:
        return {"m": self.shape[0], "n": self.shape[1]}

    def operands(self) -> tuple[Operand, ...]:
        return (
            Operand("A", "int32", self.shape, self.shape[1]),
            Operand("C", "int32", self.shape, self.shape[1], output=True),
        )

    def scalars(self) -> Mapping[str, np.generic]:
        m, n = map(np.int32, self.shape)
        return {"M": m, "N": n, "lda": n, "ldc": n}

    def inputs(self, seed: int, kind: str = "normal") -> Mapping[str, np.ndarray]:  # noqa: ARG002
        return {"A": integers(self.shape, (seed, 0), -(2**30), 2**30)}

    def expected(self, inputs: Mapping[str, np.ndarray], kind: str = "normal") -> Iterator[Expected]:  # noqa: ARG002
        yield Expected(slice(None), slice(None), PROBES[self.name].result(inputs["A"]), None)

    def tensor_map(self, operand: str, config: Mapping[str, int]) -> TensorMap:
        found = next(o for o in self.operands() if o.name == operand)
        return TensorMap("int32", found.shape, (found.leading * 4,), (config["BM"], config["BN"]))
