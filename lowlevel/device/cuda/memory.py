"""Device memory between guard zones, and pinned host memory to move arrays through."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from lowlevel.device.cuda.driver import bindings
from lowlevel.device.cuda.errors import check
from lowlevel.errors import DeviceError, UsageError

GUARD_BYTES = 4096
GUARD_BYTE = 0xA5
ALIGNMENT = 256
_CHUNK_BYTES = 32 << 20


class Pinned:
    """A page-locked host buffer: copies through it run at the link's full rate, and asynchronously."""

    def __init__(self, driver, nbytes: int = _CHUNK_BYTES):
        self._driver = driver
        self.nbytes = nbytes
        self.address = check(driver.cuMemHostAlloc(nbytes, 0), f"allocating {nbytes} bytes of pinned memory")
        self.array = np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(int(self.address)))

    def free(self) -> None:
        if self.array is not None:
            self.array = None
            self._driver.cuMemFreeHost(self.address)


class Buffer:
    """`nbytes` of device memory at `address`, 256-byte aligned, with 4 KiB of guard bytes on either side."""

    def __init__(self, device, nbytes: int):
        if nbytes <= 0:
            raise UsageError(f"cannot allocate {nbytes} bytes: a buffer has at least one")
        self._device, self._driver = device, device.driver
        self.nbytes = nbytes
        self._payload = -(-nbytes // ALIGNMENT) * ALIGNMENT
        total = self._payload + 2 * GUARD_BYTES
        result = self._driver.cuMemAlloc(total)
        if int(result[0]):
            raise DeviceError(self._no_memory(total, result[0].name), result[0].name, int(result[0]))
        self._base = int(result[1])
        self.address = self._base + GUARD_BYTES
        check(self._driver.cuMemsetD8(self._base, GUARD_BYTE, GUARD_BYTES), "filling guards")
        after = GUARD_BYTES + self._payload - nbytes
        check(self._driver.cuMemsetD8(self.address + nbytes, GUARD_BYTE, after), "filling guards")
        self._after = after

    def _no_memory(self, total: int, name: str) -> str:
        free, all_ = check(self._driver.cuMemGetInfo(), "asking for free memory")
        return (
            f"{name}: {total / 2**30:.2f} GiB asked, {free / 2**30:.2f} GiB free of {all_ / 2**30:.2f}: "
            "use a smaller shape, or end the other processes on the GPU"
        )

    def upload(self, array: np.ndarray, stream=None) -> None:
        """Copies a host array of at most this size to the start of the buffer; done when it returns."""
        data = np.ascontiguousarray(array).view(np.uint8).reshape(-1)
        if data.nbytes > self.nbytes:
            raise UsageError(f"{data.nbytes} bytes do not fit in a buffer of {self.nbytes}")
        handle = self._device.handle_of(stream)
        pinned = self._device.pinned()
        for start in range(0, data.nbytes, pinned.nbytes):
            part = data[start : start + pinned.nbytes]
            pinned.array[: part.nbytes] = part
            check(
                self._driver.cuMemcpyHtoDAsync(self.address + start, int(pinned.address), part.nbytes, handle),
                "uploading",
            )
            check(self._driver.cuStreamSynchronize(handle), "uploading")

    def download(self, dtype, shape: Sequence[int], offset: int = 0) -> np.ndarray:
        """A host copy of `shape` elements from byte `offset` on; waits for the device first."""
        out = np.empty(shape, dtype)
        data = out.reshape(-1).view(np.uint8)
        if offset + data.nbytes > self.nbytes:
            raise UsageError(f"bytes {offset} to {offset + data.nbytes} are outside a buffer of {self.nbytes}")
        self._device.synchronize()
        pinned = self._device.pinned()
        for start in range(0, data.nbytes, pinned.nbytes):
            n = min(pinned.nbytes, data.nbytes - start)
            source = self.address + offset + start
            check(self._driver.cuMemcpyDtoH(int(pinned.address), source, n), "downloading")
            data[start : start + n] = pinned.array[:n]
        return out

    def fill(self, byte: int, stream=None) -> None:
        handle = self._device.handle_of(stream)
        check(self._driver.cuMemsetD8Async(self.address, byte, self.nbytes, handle), "filling a buffer")

    def copy_from(self, other: Buffer, stream=None) -> None:
        n = min(self.nbytes, other.nbytes)
        handle = self._device.handle_of(stream)
        check(self._driver.cuMemcpyDtoDAsync(self.address, other.address, n, handle), "copying on the device")

    def part(self, offset: int, nbytes: int) -> Borrowed:
        return Borrowed(self._device, self.address + offset, nbytes)

    def guards_intact(self) -> str | None:
        """None, or one line naming the first guard byte that was overwritten."""
        self._device.synchronize()
        for side, start, size in (
            ("before", self._base, GUARD_BYTES),
            ("after", self.address + self.nbytes, self._after),
        ):
            guard = np.empty(size, np.uint8)
            check(self._driver.cuMemcpyDtoH(guard.ctypes.data, start, size), "reading guards")
            bad = np.flatnonzero(guard != GUARD_BYTE)
            if bad.size:
                distance = size - int(bad[-1]) if side == "before" else int(bad[0])
                return f"{bad.size} guard bytes {side} the buffer overwritten, the nearest {distance} bytes from it"
        return None

    def free(self) -> None:
        if self._base:
            self._driver.cuMemFree(self._base)
            self._base = 0


def owner(address: int) -> int:
    """The number of the GPU on which an address lies. UsageError for one that no GPU knows."""
    driver = bindings()
    attribute = driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    result = driver.cuPointerGetAttribute(attribute, address)
    if int(result[0]):
        raise UsageError(f"{address:#x} is not an address in a GPU's memory ({result[0].name})")
    return int(result[1])


class Borrowed(Buffer):
    """`nbytes` at `address` that someone else allocated and will free: without guards, aligned as they come."""

    def __init__(self, device, address: int, nbytes: int):
        self._device, self._driver = device, device.driver
        self.address, self.nbytes = address, nbytes

    def guards_intact(self) -> None:
        """There are none to look at."""

    def free(self) -> None:
        """Its owner does."""
