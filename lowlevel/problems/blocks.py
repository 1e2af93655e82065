"""Large host arrays by blocks, on all cores: numpy runs a function on one, but lets others run beside it.

What ml_dtypes adds to numpy holds the interpreter's lock, so bf16 is converted here by its bits.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

import ml_dtypes
import numpy as np

#: Elements of a block: some megabytes, so that what a core makes of it stays in its caches.
BLOCK = 2**20
_BF16 = np.dtype(ml_dtypes.bfloat16)


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def each(function: Callable, items: Iterable) -> list:
    """The function's results, computed by as many threads as there are cores."""
    items = list(items)
    if len(items) < 2:
        return [function(item) for item in items]
    with ThreadPoolExecutor(min(cores(), len(items))) as pool:
        return list(pool.map(function, items))


def row_blocks(shape: tuple[int, int]) -> list[slice]:
    """The rows of an array in slices of about BLOCK elements."""
    step = max(1, BLOCK // max(1, shape[1]))
    return [slice(row, min(row + step, shape[0])) for row in range(0, shape[0], step)]


def drawn(shape: tuple[int, int], seed: tuple[int, ...], dtype: np.dtype, draw: Callable) -> np.ndarray:
    """An array of `draw(generator, count)`, BLOCK elements at a time, each from a stream of its own: of (*seed, block).

    Zeros at its end do not change a seed, so that the first block's stream is that of `seed`.
    """
    values = np.empty(shape, dtype)
    flat = values.reshape(-1).view(f"u{dtype.itemsize}")

    def fill(start: int) -> None:
        part = flat[start : start + BLOCK]
        generator = np.random.Generator(np.random.SFC64((*seed, start // BLOCK)))
        part[...] = draw(generator, part.size).view(part.dtype)

    each(fill, range(0, flat.size, BLOCK))
    return values


def rounded(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Finite numbers in another type, to nearest even."""
    if values.dtype == np.float32 and dtype == _BF16:
        raw = values.view(np.uint32)
        return (
            ((raw + np.uint32(0x7FFF) + ((raw >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16))
            .astype(np.uint16)
            .view(dtype)
        )
    return values.astype(dtype, copy=False)


def to_float64(array: np.ndarray) -> np.ndarray:
    """Every element exactly, with the array's own order in memory."""
    if array.strides[0] < array.strides[1]:
        return to_float64(array.T).T
    out = np.empty(array.shape, np.float64)

    def fill(rows: slice) -> None:
        part = array[rows]
        if array.dtype == _BF16:  # the upper half of a float
            part = (part.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)
        out[rows] = part

    each(fill, row_blocks(array.shape))
    return out


def make_absolute(array: np.ndarray) -> np.ndarray:
    """The same array without its signs."""
    if array.strides[0] < array.strides[1]:
        return make_absolute(array.T).T
    each(lambda rows: np.abs(array[rows], out=array[rows]), row_blocks(array.shape))
    return array


def absolute(array: np.ndarray) -> np.ndarray:
    """The array of numbers of any type without their signs, which are the first bits of those that are not whole."""
    if array.dtype.kind in "iu":
        return np.abs(array)
    out, unsigned = np.empty_like(array), f"u{array.dtype.itemsize}"
    mask = np.array(2 ** (8 * array.dtype.itemsize - 1) - 1, unsigned)
    each(
        lambda rows: np.bitwise_and(array[rows].view(unsigned), mask, out=out[rows].view(unsigned)),
        row_blocks(array.shape),
    )
    return out
