"""What an argument of `lowlevel.run` is: a host array, or a view of device memory that someone else owns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lowlevel.errors import UsageError
from lowlevel.interop import dlpack
from lowlevel.interop.result import DeviceArray


@dataclass(frozen=True)
class View:
    """Device memory of `shape`, strides in bytes.

    ordinal: the GPU's number where it was told. stream: the producer's, whose work must end before the memory is read;
    None where the producer has seen to that. owner: keeps the memory alive.
    """

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype
    ordinal: int | None
    stream: int | None
    readonly: bool
    owner: object


def recognise(thing: object, where: str, stream: int) -> np.ndarray | View:
    """A numpy array as it is, an array in host memory as a numpy copy, device memory as a view of it. `stream` is told
    to a DLPack producer, which then makes that stream wait for its own work. Raises UsageError for anything else."""
    if isinstance(thing, np.ndarray):
        return thing
    if isinstance(thing, DeviceArray):
        return _own(thing)
    if hasattr(thing, "__dlpack__") and hasattr(thing, "__dlpack_device__"):
        return _by_dlpack(thing, where, stream)
    try:
        interface = thing.__cuda_array_interface__
    except AttributeError:
        text = "a numpy array, or a device array with __dlpack__ or __cuda_array_interface__"
        raise UsageError(f"{where} is a {type(thing).__name__}: give {text}") from None
    except Exception as error:
        raise UsageError(f"{where} cannot be shared: {_line(error)}") from None
    return _by_interface(interface, where, thing)


def _own(array: DeviceArray) -> View:
    strides = tuple(s * array.dtype.itemsize for s in dlpack.compact(array.shape))
    return View(array.address, array.shape, strides, array.dtype, array.ordinal, array.stream, False, array)


def _by_dlpack(thing: object, where: str, stream: int) -> np.ndarray | View:
    kind, _ = thing.__dlpack_device__()
    on_device = int(kind) in (dlpack.CUDA, dlpack.CUDA_MANAGED)
    if not on_device and int(kind) not in (dlpack.CPU, dlpack.CUDA_HOST):
        raise UsageError(f"{where} lies on a device of DLPack's type {int(kind)}, which is neither host nor CUDA")
    words = {"stream": stream} if on_device else {}
    try:
        try:
            capsule = thing.__dlpack__(**words, max_version=(1, 0))
        except TypeError:  # a producer from before version 1
            capsule = thing.__dlpack__(**words)
        tensor = dlpack.read(capsule)
        if not on_device:
            return dlpack.host_copy(tensor)
    except Exception as error:
        raise UsageError(f"{where} cannot be shared: {_line(error)}") from None
    return View(
        tensor.address, tensor.shape, tensor.strides, tensor.dtype, tensor.number, None, tensor.readonly, capsule
    )


def _by_interface(interface: dict, where: str, owner: object) -> View:
    """CUDA Array Interface, version 3 and before: see its page in Numba's documentation."""
    if interface.get("mask") is not None:
        raise UsageError(f"{where} has a mask, which kernels do not read")
    if interface.get("stream") == 0:
        raise UsageError(
            f"{where} names stream 0, which its interface forbids: 1 is the default stream, 2 the thread's"
        )
    address, readonly = interface["data"]
    dtype, shape = np.dtype(interface["typestr"]), tuple(interface["shape"])
    strides = interface.get("strides") or tuple(s * dtype.itemsize for s in dlpack.compact(shape))
    return View(address, shape, tuple(strides), dtype, None, interface.get("stream"), bool(readonly), owner)


def _line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
