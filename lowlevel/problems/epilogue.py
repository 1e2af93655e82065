"""Epilogues in float64: the twins of cu/include/epilogue.cuh, by the same names, with what they do to an error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Epilogue:
    """value: (A B, addend) -> C, where the addend is bias (as a row) or residual, or 0.

    addend: the operand that it adds, `bias` (N elements) or `residual` (M x N), or none. slope: the largest by which
    an error of A B can grow. roundoff: relative error of computing `value` itself in fp32, in terms of its inputs.
    exact: integers stay integers.
    """

    value: Callable[[np.ndarray, np.ndarray], np.ndarray]
    addend: str = ""
    slope: float = 1.0
    roundoff: float = 0.0
    exact: bool = True


def _silu(x: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return x / (1.0 + np.exp(-x))


#: 2^-24 is the rounding of one fp32 addition. silu's exponential is an approximation, whose error grows with its
#: argument (CUDA C++ Programming Guide, 'Intrinsic Functions': 2 + floor(1.173 |x|) ulp), but so does its distance
#: from mattering: beside 1 (x large) or as a divisor that makes the result vanish. The fast quotient is within 2 ulp,
#: and 0 where it should be nearer to 0 than 2^-119. 2^-18 of the inputs holds for all x.
EPILOGUES = {
    "none": Epilogue(lambda product, _: product),
    "bias": Epilogue(lambda product, bias: product + bias, "bias", roundoff=2.0**-24),
    "bias_relu": Epilogue(lambda product, bias: np.maximum(product + bias, 0.0), "bias", roundoff=2.0**-24),
    "bias_silu": Epilogue(
        lambda product, bias: _silu(product + bias), "bias", slope=1.1, roundoff=2.0**-18, exact=False
    ),
    "residual": Epilogue(lambda product, residual: product + residual, "residual", roundoff=2.0**-24),
}
