"""What a call on device arrays returns: an array in device memory that any library can take."""

from __future__ import annotations

import sys

import numpy as np

from lowlevel.interop import dlpack
from lowlevel.interop.streams import LEGACY


class DeviceArray:
    """A row-major array on a GPU, freed with its last reference. `stream` is the handle of the stream whose work
    produces it: whoever takes it by `__cuda_array_interface__` or `__dlpack__` is told, and waits there.

    `numpy()` waits and copies it to the host.
    """

    def __init__(self, device, buffer, shape: tuple[int, ...], dtype: np.dtype, stream: int):
        self._device, self._buffer = device, buffer
        self.shape, self.dtype, self.stream = tuple(shape), np.dtype(dtype), stream
        self.address, self.ordinal = buffer.address, device.ordinal

    @property
    def nbytes(self) -> int:
        return self._buffer.nbytes

    def numpy(self) -> np.ndarray:
        with self._device.current():
            return self._buffer.download(self.dtype, self.shape)

    @property
    def __cuda_array_interface__(self) -> dict:
        """Version 3. AttributeError for types that numpy does not name (bf16, fp8): take those by DLPack."""
        if self.dtype.kind not in "iuf":
            raise AttributeError(f"the CUDA array interface has no name for {self.dtype}: use __dlpack__")
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.address, False),
            "strides": None,
            "version": 3,
            "stream": self.stream,
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.CUDA, self.ordinal

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        """A capsule for a consumer that will work on `stream` (None: the legacy default stream; -1: it sees to the
        order itself). Of the older kind, which consumers of every version take."""
        if dl_device not in (None, self.__dlpack_device__()) or copy:
            raise BufferError("a DeviceArray is shared where it lies, and not copied")
        if stream == 0:
            raise BufferError("stream 0 is ambiguous: 1 is the legacy default stream, 2 the thread's")
        consumer = LEGACY if stream is None else int(stream)
        if consumer not in (-1, self.stream):
            with self._device.current():
                self._device.borrow_stream(consumer).wait_for(self._device.borrow_stream(self.stream))
        return dlpack.capsule(self.address, self.shape, self.dtype, *self.__dlpack_device__(), self)

    def __repr__(self) -> str:
        return f"DeviceArray(shape={self.shape}, dtype={self.dtype}, gpu={self.ordinal})"

    def __del__(self):
        # The driver frees memory only when the work that uses it is done.
        if not sys.is_finalizing() and getattr(self, "_buffer", None) is not None:
            with self._device.current():
                self._buffer.free()
