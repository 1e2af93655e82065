"""Element types, and the combinations of them that a kernel computes with."""

from dataclasses import dataclass

import ml_dtypes
import numpy as np


@dataclass(frozen=True)
class Element:
    """One element type in memory.

    `roundoff` is the unit roundoff 2^-p of a significand of p bits; 0 for integers, which are exact.
    """

    name: str
    numpy: np.dtype
    roundoff: float

    @property
    def bytes(self) -> int:
        return self.numpy.itemsize


ELEMENTS = {
    e.name: e
    for e in (
        Element("fp32", np.dtype(np.float32), 2.0**-24),
        Element("fp16", np.dtype(np.float16), 2.0**-11),
        Element("bf16", np.dtype(ml_dtypes.bfloat16), 2.0**-8),
        Element("fp8", np.dtype(ml_dtypes.float8_e4m3fn), 2.0**-4),
        Element("int8", np.dtype(np.int8), 0.0),
        Element("int32", np.dtype(np.int32), 0.0),
    )
}


@dataclass(frozen=True)
class Type:
    """What a kernel multiplies, sums and stores.

    name: unique, as in a row's name (`bf16`, `fp16_acc16`). dtype: the results file's word for it.
    operand, output: names in ELEMENTS. accumulate: fp32, fp16 or int32. unit_roundoff: of one
    accumulation, for the error bound: 2^-24 for FMA, 2^-23 for tensor cores, 2^-10 for fp16 sums.
    unit: which rate of the hardware applies, a key of `hardware.Gpu.flop_per_clock`.
    scaled: whether A and B come with a scale each.
    truncated_step: how much of k a tensor core adds at a time where it truncates its running sum at unit_roundoff;
    0 where sums stay fp32. problems.gemm derives the bound of each.
    """

    name: str
    dtype: str
    operand: str
    output: str
    accumulate: str
    unit_roundoff: float
    unit: str
    truncated_step: int = 0
    scaled: bool = False

    @property
    def exact(self) -> bool:
        return self.accumulate == "int32"


FP32 = Type("fp32", "fp32", "fp32", "fp32", "fp32", 2.0**-24, "fp32")
# tf32 operands live in 32-bit words whose low 13 bits are zero, so that no unit rounds them again.
TF32 = Type("tf32", "tf32", "fp32", "fp32", "fp32", 2.0**-23, "tf32")
FP16 = Type("fp16", "fp16", "fp16", "fp16", "fp32", 2.0**-23, "fp16")
FP16_ACC16 = Type("fp16_acc16", "fp16", "fp16", "fp16", "fp16", 2.0**-10, "fp16")
BF16 = Type("bf16", "bf16", "bf16", "bf16", "fp32", 2.0**-23, "bf16")
# Hopper adds 32 products at a time and keeps about 14 bits of their sum (DeepSeek-V3 technical report, section 3.3.2).
# Sums that are promoted to fp32 on the way err less, and are held to the same bound.
FP8 = Type("fp8", "fp8", "fp8", "bf16", "fp32", 2.0**-13, "fp8", truncated_step=32, scaled=True)
INT8 = Type("int8", "int8", "int8", "int32", "int32", 0.0, "int8")
# Types of operations that only move elements: the bits matter, not what they mean.
MOVE32 = Type("fp32", "fp32", "fp32", "fp32", "fp32", 0.0, "none")
MOVE16 = Type("bf16", "bf16", "bf16", "bf16", "fp32", 0.0, "none")
WORDS = Type("int32", "int32", "int32", "int32", "int32", 0.0, "none")

TYPES = {t.name: t for t in (FP32, TF32, FP16, FP16_ACC16, BF16, FP8, INT8)}
