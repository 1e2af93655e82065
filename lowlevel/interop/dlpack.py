"""DLPack by ctypes: reading a capsule, and making one.

The structures are those of dlpack.h 1.0; a capsule is `dltensor`, or `dltensor_versioned` from version 1 on. See
'Python Specification for DLPack' in the DLPack documentation.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from lowlevel.errors import UsageError

CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13
_READ_ONLY = 1
_PLAIN, _VERSIONED = b"dltensor", b"dltensor_versioned"

#: (type code, bits) -> numpy type. Codes: 0 signed, 1 unsigned, 2 float, 4 bfloat, 10 float8_e4m3fn, 12 float8_e5m2.
_TYPES = {
    **{(code, 8 * size): np.dtype(f"{kind}{size}") for code, kind in ((0, "i"), (1, "u")) for size in (1, 2, 4, 8)},
    **{(2, 8 * size): np.dtype(f"f{size}") for size in (2, 4, 8)},
    (4, 16): np.dtype(ml_dtypes.bfloat16),
    (10, 8): np.dtype(ml_dtypes.float8_e4m3fn),
    (12, 8): np.dtype(ml_dtypes.float8_e5m2),
}
_CODES = {dtype: code for code, dtype in _TYPES.items()}


class _Device(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int32), ("number", ctypes.c_int32)]


class _Type(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("rank", ctypes.c_int32),
        ("type", _Type),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Managed(ctypes.Structure):
    _fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class _ManagedVersioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    ]


# Prototypes of our own: those of `ctypes.pythonapi` are shared by everyone in the process.
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_IsValid", ctypes.pythonapi))
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi)
)


@dataclass(frozen=True)
class Tensor:
    """What a capsule describes; strides in bytes. The memory lives as long as `capsule`, which is left unused: its own
    destructor tells the producer when it goes."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype
    kind: int
    number: int
    readonly: bool
    capsule: object


def read(capsule: object) -> Tensor:
    """Raises UsageError for a capsule that is none, was used, or has a version or type that is unknown here."""
    address = id(capsule)
    if type(capsule).__name__ == "PyCapsule" and _is_valid(address, _VERSIONED):
        managed = _ManagedVersioned.from_address(_pointer(address, _VERSIONED))
        if managed.major != 1:
            raise UsageError(f"DLPack version {managed.major}.{managed.minor} is unknown here; 1.x is known")
        readonly = bool(managed.flags & _READ_ONLY)
    elif type(capsule).__name__ == "PyCapsule" and _is_valid(address, _PLAIN):
        managed, readonly = _Managed.from_address(_pointer(address, _PLAIN)), False
    else:
        raise UsageError("its __dlpack__ gave no fresh DLPack capsule")
    tensor = managed.tensor
    dtype = _dtype(tensor.type)
    shape = tuple(tensor.shape[: tensor.rank])
    strides = tuple(tensor.strides[: tensor.rank]) if tensor.strides else compact(shape)
    return Tensor(
        (tensor.data or 0) + tensor.byte_offset,
        shape,
        tuple(s * dtype.itemsize for s in strides),
        dtype,
        tensor.device.kind,
        tensor.device.number,
        readonly,
        capsule,
    )


def _dtype(found: _Type) -> np.dtype:
    if found.lanes != 1 or (found.code, found.bits) not in _TYPES:
        text = f"type code {found.code} of {found.bits} bits, {found.lanes} lanes"
        raise UsageError(f"DLPack {text}, is none of {', '.join(map(str, _CODES))}")
    return _TYPES[found.code, found.bits]


def compact(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides in elements."""
    strides = [1]
    for extent in reversed(shape[1:]):
        strides.append(strides[-1] * extent)
    return tuple(reversed(strides))[: len(shape)]


def host_copy(tensor: Tensor) -> np.ndarray:
    """A numpy copy of a tensor in host memory."""
    if 0 in tensor.shape:
        return np.empty(tensor.shape, tensor.dtype)
    if min(tensor.strides, default=0) < 0:
        raise UsageError(f"strides {tensor.strides}: negative ones are not taken")
    extent = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.strides, strict=True)) + tensor.dtype.itemsize
    memory = (ctypes.c_uint8 * extent).from_address(tensor.address)
    return np.ndarray(tensor.shape, tensor.dtype, memory, 0, tensor.strides).copy()


#: Tensors handed out: address of the managed structure -> what it points to and what owns the memory.
_handed_out: dict[int, tuple] = {}


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def _deleter(managed: int) -> None:
    """The consumer is done with the memory."""
    _handed_out.pop(managed, None)


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def _forgotten(capsule: int) -> None:
    """A capsule goes: if nobody took the tensor (and renamed the capsule), nobody will call its deleter."""
    if _is_valid(capsule, _PLAIN):
        _handed_out.pop(_pointer(capsule, _PLAIN), None)


# Consumers may call back while the interpreter ends, after this module is gone: these two stay for ever.
for _function in (_deleter, _forgotten):
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_function))


def capsule(address: int, shape: tuple[int, ...], dtype: np.dtype, kind: int, number: int, owner: object) -> object:
    """A fresh capsule `dltensor` of a row-major array; `owner` lives until the consumer lets go."""
    code, bits = _CODES[np.dtype(dtype)]
    sizes = (ctypes.c_int64 * (2 * len(shape)))(*shape, *compact(shape))
    managed = _Managed()
    tensor = managed.tensor
    tensor.data, tensor.device, tensor.rank = address, _Device(kind, number), len(shape)
    tensor.type = _Type(code, bits, 1)
    start = ctypes.addressof(sizes)
    tensor.shape = ctypes.cast(start, ctypes.POINTER(ctypes.c_int64))
    tensor.strides = ctypes.cast(start + 8 * len(shape), ctypes.POINTER(ctypes.c_int64))
    managed.deleter = ctypes.cast(_deleter, ctypes.c_void_p)
    where = ctypes.addressof(managed)
    _handed_out[where] = (managed, sizes, owner)
    return _new(where, _PLAIN, ctypes.cast(_forgotten, ctypes.c_void_p))
