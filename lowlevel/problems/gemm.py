"""C = epilogue(A B) for the four layouts: inputs, reference, bound.

Layouts are named for the row-major view: N as the formula has it, T transposed in memory. NN is A[M,K] B[K,N];
NT is A[M,K] B[N,K], both contiguous along K, what a linear layer has; TN is A[K,M] B[K,N]; TT is A[K,M] B[N,K].
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from lowlevel.dtypes import ELEMENTS, Type
from lowlevel.errors import UsageError
from lowlevel.problems.base import Expected, Operand, integers, standard_normal
from lowlevel.problems.blocks import drawn, make_absolute, rounded, to_float64
from lowlevel.problems.epilogue import EPILOGUES, Epilogue
from lowlevel.tensormap import TensorMap

LAYOUTS = ("NN", "NT", "TN", "TT")
#: The operands that A and B are multiplied by, where they are scaled.
SCALES = ("scale_a", "scale_b")

#: Up to this much work every element is checked against float64.
WHOLE_FLOPS = 2**34
SAMPLES = 64
#: The edge checked beside the samples: whole tiles of the largest size that a kernel here uses.
EDGE_TILE = 256
_CHUNK = 1024


@dataclass(frozen=True)
class Gemm:
    """C[m,n] = epilogue(sum over k of A[m,k] B[k,n]); leading dimensions in elements, tight unless given.

    epilogue: a name in problems.epilogue.EPILOGUES. Its addend is an operand too: `bias`, one row of n elements, or
    `residual`, m x n like C, tight. unaligned: the operands that do not begin at a multiple of 16 bytes.
    scales: fp8 only, what A and B are multiplied by: the product is scale_a scale_b A B. Each is an operand of one fp32
    number, `scale_a` and `scale_b`, and these are the values that `inputs` gives them.
    """

    m: int
    n: int
    k: int
    type: Type
    layout: str = "NN"
    lda: int = 0
    ldb: int = 0
    ldc: int = 0
    epilogue: str = "none"
    unaligned: tuple[str, ...] = ()
    scales: tuple[float, float] = (1.0, 1.0)
    operation = "gemm"

    def __post_init__(self):
        if self.layout not in LAYOUTS:
            raise UsageError(f"no layout '{self.layout}'; there are: {', '.join(LAYOUTS)}")
        if self.epilogue not in EPILOGUES:
            raise UsageError(f"no epilogue '{self.epilogue}'; there are: {', '.join(EPILOGUES)}")
        if min(self.m, self.n, self.k) < 1:
            raise UsageError(f"shape {self.label}: every dimension is at least 1")
        if self.scales != (1.0, 1.0) and not self.type.scaled:
            raise UsageError(f"{self.type.name} has no scales")
        for name, columns in zip(("lda", "ldb", "ldc"), self._columns(), strict=True):
            given = getattr(self, name)
            if given and given < columns:
                raise UsageError(f"{name}={given} is less than the row it strides over, {columns}")
            object.__setattr__(self, name, given or columns)

    def _columns(self) -> tuple[int, int, int]:
        return (
            self.k if self.layout[0] == "N" else self.m,
            self.n if self.layout[1] == "N" else self.k,
            self.n,
        )

    @property
    def label(self) -> str:
        return f"{self.m}x{self.n}x{self.k}"

    @property
    def flops(self) -> int:
        return 2 * self.m * self.n * self.k

    @property
    def bytes(self) -> int:
        return sum(operand.payload for operand in self.operands())

    @property
    def dimensions(self) -> Mapping[str, int]:
        return {name: getattr(self, name) for name in ("m", "n", "k", "lda", "ldb", "ldc")}

    @property
    def whole(self) -> bool:
        return self.flops <= WHOLE_FLOPS

    @property
    def finish(self) -> Epilogue:
        """The epilogue's float64 twin."""
        return EPILOGUES[self.epilogue]

    @property
    def product(self) -> Gemm:
        """The same product without its epilogue."""
        return replace(self, epilogue="none")

    def operands(self) -> tuple[Operand, ...]:
        a = (self.m, self.k) if self.layout[0] == "N" else (self.k, self.m)
        b = (self.k, self.n) if self.layout[1] == "N" else (self.n, self.k)
        operands = (
            Operand("A", self.type.operand, a, self.lda),
            Operand("B", self.type.operand, b, self.ldb),
            *self._scales(),
            *self._addend(),
            Operand("C", self.type.output, (self.m, self.n), self.ldc, output=True),
        )
        return tuple(replace(o, aligned=False) if o.name in self.unaligned else o for o in operands)

    def _addend(self) -> tuple[Operand, ...]:
        if not self.finish.addend:
            return ()
        rows = 1 if self.finish.addend == "bias" else self.m
        return (Operand(self.finish.addend, self.type.output, (rows, self.n), self.n),)

    def _scales(self) -> tuple[Operand, ...]:
        return tuple(Operand(name, "fp32", (1, 1), 1) for name in SCALES) if self.type.scaled else ()

    def scalars(self) -> Mapping[str, np.generic]:
        sizes = {name: np.int32(getattr(self, name.lower())) for name in ("M", "N", "K")}
        return {**sizes, **{name: np.int32(getattr(self, name)) for name in ("lda", "ldb", "ldc")}}

    def inputs(self, seed: int, kind: str = "normal") -> Mapping[str, np.ndarray]:
        operands = self.operands()[:-1]
        return {o.name: self._values(o, (seed, index), kind) for index, o in enumerate(operands)}

    def _values(self, operand: Operand, seed: tuple[int, int], kind: str) -> np.ndarray:
        if operand.name in SCALES:
            return np.full(operand.shape, self.scales[SCALES.index(operand.name)], np.float32)
        if operand.element == "int8":
            return integers(operand.shape, seed, -127, 127, operand.dtype)
        if kind == "integer":
            # fp16 holds integers up to 2^11 exactly; sums of {-1, 0, 1} stay far below in any K that fits in memory.
            most = 1 if self.type.accumulate == "fp16" else 2
            return integers(operand.shape, seed, -most, most, operand.dtype)
        return drawn(operand.shape, seed, operand.dtype, partial(self._normal, operand.dtype))

    def _normal(self, dtype: np.dtype, generator: np.random.Generator, count: int) -> np.ndarray:
        """N(0,1) in an operand's type."""
        values = standard_normal(generator, count)
        if self.type.accumulate == "fp16":
            values *= np.float32(self.k**-0.25)  # both operands: sums keep the size of one product at any K
        if self.type.dtype == "tf32":
            return round_to_tf32(values)
        return rounded(values, dtype)

    def expected(self, inputs: Mapping[str, np.ndarray], kind: str = "normal") -> Iterator[Expected]:
        """Every element up to 2^34 FLOP; above, 64 rows, 64 columns and the tiles of the last row and column."""
        if self.whole:
            step = max(1, 2**24 // self.n)
            for row in range(0, self.m, step):
                yield self.part(inputs, slice(row, min(row + step, self.m)), slice(0, self.n), kind)
            return
        yield self.part(inputs, sampled(self.m), slice(0, self.n), kind)
        yield self.part(inputs, slice(0, self.m), sampled(self.n), kind)

    def part(self, inputs: Mapping[str, np.ndarray], rows, columns, kind: str) -> Expected:
        """The reference and bound of C[rows][:, columns], summed in float64."""
        scale = math.prod(float(inputs[operand.name][0, 0]) for operand in self._scales())
        exact = self.finish.exact and (self.type.exact or kind == "integer") and abs(math.frexp(scale)[0]) == 0.5
        a = inputs["A"] if self.layout[0] == "N" else inputs["A"].T
        b = inputs["B"] if self.layout[1] == "N" else inputs["B"].T
        a, b = a[rows], b[:, columns]
        value, size = 0.0, 0.0
        for k in range(0, self.k, _CHUNK):
            a_part, b_part = to_float64(a[:, k : k + _CHUNK]), to_float64(b[k : k + _CHUNK])
            value += a_part @ b_part
            if not exact:
                size += make_absolute(a_part) @ make_absolute(b_part)
        value, size = scale * value, abs(scale) * size
        addend = self._addend_part(inputs, rows, columns)
        finished = self.finish.value(value, addend)
        if exact:
            return Expected(rows, columns, finished.astype(ELEMENTS[self.type.output].numpy), None)
        bound = self.bound(finished, size) + self.finish.roundoff * (np.abs(value) + np.abs(addend))
        return Expected(rows, columns, finished, bound)

    def _addend_part(self, inputs: Mapping[str, np.ndarray], rows, columns) -> np.ndarray | float:
        if not self.finish.addend:
            return 0.0
        addend = inputs[self.finish.addend][:, columns]
        return (addend if self.finish.addend == "bias" else addend[rows]).astype(np.float64)

    def bound(self, value: np.ndarray, size: np.ndarray) -> np.ndarray:
        """|err| <= u_out |c| + 8 sqrt(K) u_acc (|A||B|): one rounding of the result, and rounding errors of K sums
        that grow like their square root. `size` is |A||B|. For truncated sums see `accumulation_bound`."""
        return self.relative_bound * np.abs(value) + self.accumulation_bound * size

    @property
    def relative_bound(self) -> float:
        """The factor of |c| in the bound: one rounding of the result, and half a unit for each time that the running
        sum is cut, always towards zero."""
        roundoff = ELEMENTS[self.type.output].roundoff
        if step := self.type.truncated_step:
            return roundoff + math.ceil(self.k / step) * self.type.unit_roundoff / 2
        return roundoff

    @property
    def accumulation_bound(self) -> float:
        """The factor of |A||B| in the bound.

        K rounding errors with random signs add up to 8 sqrt(K) of one (eight standard deviations). One is taken as
        u_acc |A||B|, since no partial sum is larger. Where a unit is as coarse as 2^-13 that is too much allowed: a
        missing block would hide in it. There the running sum is taken as what K terms with random signs give,
        |A||B| / sqrt(K), and a cut product errs by a unit of that: 8 sqrt(K) unit |A||B| / sqrt(K).
        """
        if self.type.truncated_step:
            return 8.0 * self.type.unit_roundoff * self.finish.slope
        return 8.0 * math.sqrt(self.k) * self.type.unit_roundoff * self.finish.slope

    def tensor_map(self, operand: str, config: Mapping[str, int]) -> TensorMap:
        """A K-major operand in boxes of BM or BN rows by BK columns, swizzled when a box row is 128 bytes."""
        found = next(o for o in self.operands() if o.name == operand)
        rows = config["BN"] if operand == "B" else config["BM"]
        columns = config["BN"] if operand == "C" else config["BK"]
        size = found.dtype.itemsize
        swizzle = "128B" if columns * size == 128 else "none"
        return TensorMap(found.element, found.shape, (found.leading * size,), (rows, columns), swizzle)


def sampled(extent: int) -> np.ndarray:
    """64 indices spread over 0..extent-1, first and last among them, and the last 256: the tiles of the edge."""
    spread = np.random.Generator(np.random.SFC64(extent)).integers(0, extent, SAMPLES - 2)
    edge = np.arange(max(0, extent - EDGE_TILE), extent)
    return np.unique(np.concatenate([[0, extent - 1], spread, edge]))


def round_to_tf32(values: np.ndarray) -> np.ndarray:
    """float32 rounded to nearest even at 10 mantissa bits: what a tf32 tensor core reads without rounding again."""
    raw = values.view(np.uint32)
    rounded = raw + np.uint32(0xFFF) + ((raw >> np.uint32(13)) & np.uint32(1))
    return (rounded & np.uint32(0xFFFFE000)).view(np.float32)
