"""The bound of truncated sums, against a model of the tensor core that it was derived for."""

import numpy as np
import pytest

from lowlevel.dtypes import BF16, ELEMENTS, FP8
from lowlevel.problems.gemm import Gemm
from lowlevel.verify import check_output


def truncating_product(a: np.ndarray, b: np.ndarray, bits: int = 13, step: int = 32) -> np.ndarray:
    """A B^T as Hopper's fp8 tensor cores sum it: `step` products and the running sum aligned to the largest of them,
    everything below `bits` bits after its leading one cut off, before the sum and after it."""
    total = np.zeros((len(a), len(b)))
    for k in range(0, a.shape[1], step):
        products = a[:, None, k : k + step] * b[None, :, k : k + step]
        largest = np.maximum(np.abs(products).max(axis=2), np.abs(total))
        unit = np.ldexp(1.0, np.frexp(largest)[1] - 1 - bits)
        total = (np.trunc(products / unit[..., None]).sum(axis=2) + np.trunc(total / unit)) * unit
        fraction, exponent = np.frexp(total)
        total = np.ldexp(np.trunc(np.ldexp(fraction, bits + 1)), exponent - bits - 1)
    return total


def checked(k: int, bits: int = 13, promote: int = 0) -> tuple[float, float]:
    """The largest error as a fraction of its bound, and the rms error, for 48 x 48 results stored as bf16; of sums that
    are added up in fp32 every `promote` of k."""
    problem = Gemm(48, 48, k, FP8, "NT")
    inputs = problem.inputs(0)
    a, b = (inputs[name].astype(np.float64) for name in "AB")
    total = np.float32(0)
    for first in range(0, k, promote or k):
        span = slice(first, first + (promote or k))
        total = (total + truncating_product(a[:, span], b[:, span], bits)).astype(np.float32)
    verdict = check_output(problem, list(problem.expected(inputs)), total.astype(ELEMENTS["bf16"].numpy))
    return verdict.max_error / verdict.error_bound, verdict.rms_error


def nearness(k: int, bits: int) -> float:
    return checked(k, bits)[0]


@pytest.mark.parametrize("k", [32, 1024, 16384])
def test_the_model_stays_within_the_bound(k):
    assert nearness(k, bits=13) <= 1


@pytest.mark.parametrize("k", [1024, 16384])
def test_fewer_bits_leave_it(k):
    """Four bits less: the bound is loose by less than that."""
    assert nearness(k, bits=9) > 1


@pytest.mark.parametrize("promote", [128, 256])
def test_promoted_sums_stay_within_the_bound_and_err_less(promote):
    """Of 1.7e-3, which is bf16's own rounding, they add less than a hundredth."""
    nearest, promoted = checked(16384, promote=promote)
    assert nearest <= 1
    assert 1.6e-3 < promoted < 1.7e-3
    assert checked(16384)[1] > 3e-3


def test_the_truncated_bound_grows_with_k_and_not_with_its_root():
    """Per |A||B| it stays the same, where sums in fp32 have the square root of K."""
    short, long = Gemm(8, 8, 256, FP8, "NT"), Gemm(8, 8, 4096, FP8, "NT")
    assert short.accumulation_bound == long.accumulation_bound == 2.0**-10
    assert long.relative_bound - short.relative_bound == (128 - 8) * 2.0**-14
    short, long = Gemm(8, 8, 256, BF16, "NT"), Gemm(8, 8, 4096, BF16, "NT")
    assert long.accumulation_bound == 4 * short.accumulation_bound == 8 * 64 * 2.0**-23
    assert long.relative_bound == short.relative_bound == 2.0**-8


def test_a_step_that_is_not_whole_counts():
    assert Gemm(8, 8, 33, FP8, "NT").relative_bound == 2.0**-8 + 2 * 2.0**-14
