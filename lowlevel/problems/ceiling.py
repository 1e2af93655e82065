"""What an arithmetic unit reaches with its operands in registers: one small product, repeated, exactly checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from lowlevel.dtypes import Type
from lowlevel.errors import UsageError
from lowlevel.problems.base import Expected, Operand, integers, normal
from lowlevel.tensormap import TensorMap

#: The product that each block repeats: A is M x K, B is N x K, both contiguous along k.
M, N, K = 512, 64, 32
#: Shared among the blocks: some four milliseconds of a large GPU.
REPETITIONS = 2**20
#: C is written this often, once at least by each block of a GPU of up to as many SMs.
COPIES = 160


@dataclass(frozen=True)
class Ceiling:
    """C = A B, the mean of REPETITIONS products that the blocks share; `k` counts all of them.

    Operands are integers of up to 8 bits. The second half of k is the first, negated and in reverse, but for one k of
    each row where 1 is added or taken away: a product is one row of B or its negative, and R of them add up to less
    than 2^24 for R up to 2^17, so that fp32 sums are exact in any order.
    """

    type: Type
    layout: str = ""
    epilogue: str = "none"
    operation = "ceiling"
    whole = True

    @property
    def label(self) -> str:
        return f"{M}x{N}x{K * REPETITIONS}"

    @property
    def flops(self) -> int:
        return 2 * M * N * K * REPETITIONS

    @property
    def bytes(self) -> int:
        return sum(operand.payload for operand in self.operands())

    @property
    def dimensions(self) -> Mapping[str, int]:
        return {"m": M, "n": N, "k": K * REPETITIONS}

    def operands(self) -> tuple[Operand, ...]:
        return (
            Operand("A", self.type.operand, (M, K), K),
            Operand("B", self.type.operand, (N, K), K),
            Operand("C", "fp32", (COPIES * M, N), N, output=True),
        )

    def scalars(self) -> Mapping[str, np.generic]:
        return {"repetitions": np.int32(REPETITIONS), "copies": np.int32(COPIES)}

    def inputs(self, seed: int, kind: str = "normal") -> Mapping[str, np.ndarray]:  # noqa: ARG002
        """Normally distributed over the 8 bits, whatever `kind`: data of few bits would need less power."""
        a, b = (_bell((rows, K // 2), (seed, index)) for index, rows in enumerate((M, N)))
        rest = -a
        rows, odd = np.arange(M), integers((M, 2), (seed, 2), 0, K // 2 - 1)
        rest[rows, odd[:, 0]] += odd[:, 1] % 2 * 2 - 1
        values = {"A": (a, rest), "B": (b, b)}
        dtypes = {operand.name: operand.dtype for operand in self.operands()}
        return {name: np.hstack([one, two[:, ::-1]]).astype(dtypes[name]) for name, (one, two) in values.items()}

    def expected(self, inputs: Mapping[str, np.ndarray], kind: str = "normal") -> Iterator[Expected]:  # noqa: ARG002
        product = inputs["A"].astype(np.float64) @ inputs["B"].astype(np.float64).T
        value = np.tile(product, (COPIES, 1)).astype(self.operands()[-1].dtype)
        yield Expected(slice(None), slice(None), value, None)

    def tensor_map(self, operand: str, config: Mapping[str, int]) -> TensorMap:  # noqa: ARG002
        raise UsageError(f"a ceiling has no tensor map of {operand}")


def _bell(shape: tuple[int, int], seed: tuple[int, ...]) -> np.ndarray:
    """Integers of N(0, 40^2), within 127."""
    return np.clip(np.rint(40 * normal(shape, seed)), -127, 127).astype(np.float32)
