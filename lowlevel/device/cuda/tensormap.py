"""Encoding a tensor map by the driver.

The bindings hand the driver an object that may lie at any multiple of 16 bytes, though CUtensorMap asks for 64
(CUDA 12) or 128 (CUDA 13): so the function is called through ctypes on memory of our own.
"""

from __future__ import annotations

import ctypes

from lowlevel.device.cuda.errors import check, describe
from lowlevel.errors import DeviceError
from lowlevel.tensormap import TensorMap, check_rules

_ALIGNMENT = 128
_BYTES = 128
_U32, _U64, _P = ctypes.c_uint32, ctypes.c_uint64, ctypes.POINTER

#: CUtensorMapDataType, by element.
_TYPES = {"int8": 0, "fp8": 0, "int32": 3, "fp16": 6, "fp32": 7, "bf16": 9}
_SWIZZLES = {"none": 0, "32B": 1, "64B": 2, "128B": 3}
_PROMOTIONS = {0: 0, 64: 1, 128: 2, 256: 3}


class EncodedMap:
    """128 bytes that a kernel takes by value, in memory aligned as the driver wants it."""

    def __init__(self, driver, spec: TensorMap, address: int):
        check_rules(spec, address)
        self._raw = ctypes.create_string_buffer(_BYTES + _ALIGNMENT - 1)
        self.address = -(-ctypes.addressof(self._raw) // _ALIGNMENT) * _ALIGNMENT
        rank = len(spec.shape)
        status = _encoder(driver)(
            self.address,
            _TYPES[spec.element],
            rank,
            address,
            (_U64 * rank)(*reversed(spec.shape)),
            (_U64 * max(1, rank - 1))(*reversed(spec.strides)),
            (_U32 * rank)(*reversed(spec.box)),
            (_U32 * rank)(*[1] * rank),
            0,
            _SWIZZLES[spec.swizzle],
            _PROMOTIONS[spec.l2_promotion],
            0,
        )
        if status:
            name = driver.CUresult(status).name
            raise DeviceError(describe(name, f"encoding {spec}"), name, status)

    def as_parameter(self):
        return (ctypes.c_uint8 * _BYTES).from_address(self.address)


def _encoder(driver):
    pointer = check(driver.cuGetProcAddress(b"cuTensorMapEncodeTiled", 12000, 0), "finding cuTensorMapEncodeTiled")[0]
    return ctypes.CFUNCTYPE(
        ctypes.c_int,
        ctypes.c_void_p,
        ctypes.c_int,
        _U32,
        ctypes.c_void_p,
        _P(_U64),
        _P(_U64),
        _P(_U32),
        _P(_U32),
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_int,
    )(int(pointer))
