"""One wgmma on a device, of operands that the caller chose: what the recorders in tools/ ask the hardware by."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import ml_dtypes
import numpy as np

from lowlevel import paths
from lowlevel.device.protocol import Device, LaunchShape
from lowlevel.errors import DeviceError
from lowlevel.study.descriptor import Descriptor
from lowlevel.study.fragment import FRAGMENTS, WARPGROUP, Fragment
from lowlevel.toolchain.binary import Request
from lowlevel.toolchain.build import build_here

#: Bytes of shared memory that the kernels have: MEMORY in cu/support/fragment_warpgroup.cu.
MEMORY = 36864

TYPES = {"bf16": np.dtype(ml_dtypes.bfloat16), "f16": np.dtype(np.float16)}
_ARCH = "sm_90a"
_SHAPE = LaunchShape((1, 1, 1), (WARPGROUP, 1, 1))


def request(type_: str, n: int, a_major: str = "K", b_major: str = "K") -> Request:
    """The kernels for one type, N and way of lying."""
    defines = {
        "N": n,
        f"TYPE_{'FP16' if type_ == 'f16' else 'BF16'}": 1,
        "A_MN_MAJOR": int(a_major == "MN"),
        "B_MN_MAJOR": int(b_major == "MN"),
    }
    source = paths.kernel_root() / "cu" / "support" / "fragment_warpgroup.cu"
    pairs = tuple((name, str(value)) for name, value in defines.items())
    return Request("cuda", source, _ARCH, ("products_shared", "products_registers"), pairs)


def of_shared(device: Device, asked: Request, memory: np.ndarray, a: Descriptor, b: Descriptor) -> np.ndarray:
    """The sums of each thread, (128, N / 2), of A and B in shared memory."""
    return _sums(device, asked, "products_shared", memory, np.uint64(a.word), np.uint64(b.word))


def of_registers(device: Device, asked: Request, memory: np.ndarray, A: np.ndarray, b: Descriptor) -> np.ndarray:
    """The same of A in registers, values in the order thread, register, part."""
    words = device.allocate(A.nbytes)
    words.upload(np.ascontiguousarray(A).view(np.uint32))
    return _sums(device, asked, "products_registers", memory, words, np.uint64(b.word))


def _sums(device: Device, asked: Request, kernel: str, memory: np.ndarray, *operands) -> np.ndarray:
    n = int(dict(asked.defines)["N"])
    raw = np.zeros(MEMORY, np.uint8)
    raw[: memory.nbytes] = memory.view(np.uint8)
    held, d, status = device.allocate(MEMORY), device.allocate(4 * WARPGROUP * n // 2), device.allocate(4)
    held.upload(raw)
    function, stream = device.load(build_here(asked)).function(kernel), device.stream()
    device.bind(function, _SHAPE, [held, *operands, d, status]).launch(stream)
    stream.synchronize()
    if status.download(np.int32, (1,))[0]:
        raise DeviceError(f"{kernel}: its shared memory does not begin at a multiple of 1024")
    return d.download(np.float32, (WARPGROUP, n // 2))


def laid(it: Descriptor, major: str, values: np.ndarray, memory: np.ndarray) -> None:
    """Writes an operand, values[m or n, k], to memory of 16-bit elements where the descriptor says it lies."""
    for row, k in np.ndindex(values.shape):
        along, byte = (row, 2 * k) if major == "K" else (k, 2 * row)
        memory[it.address(major, along, byte) // 2] = values[row, k]


def matrix(sums: np.ndarray) -> np.ndarray:
    """The sums of each thread as D, (64, N)."""
    n = 2 * sums.shape[1]
    found = np.zeros((64, n), sums.dtype)
    found[places(FRAGMENTS[f"wgmma.m64n{n}k16.d"])] = sums.ravel()
    return found


def registers(values: np.ndarray, it: Fragment) -> np.ndarray:
    """An operand's values as its fragment holds them, in the order thread, register, part."""
    return values[places(it)]


@functools.cache
def places(it: Fragment) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns of all that a fragment holds, in the order thread, register, part."""
    rows, columns = zip(*(it.place(*holder) for holder in it.holders()), strict=True)
    return np.array(rows), np.array(columns)


def digits(numbers: np.ndarray, base: int) -> Sequence[np.ndarray]:
    """Each number as two that a 16-bit type holds exactly, low and high."""
    return numbers % base, numbers // base
