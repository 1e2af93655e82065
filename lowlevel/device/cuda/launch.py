"""A launch, checked on the host and bound once, so that launching it again is one driver call."""

from __future__ import annotations

import ctypes
import numbers
from collections.abc import Sequence

import numpy as np

from lowlevel.device.cuda.errors import describe
from lowlevel.device.cuda.memory import Buffer
from lowlevel.device.cuda.module import Function
from lowlevel.device.protocol import LaunchShape
from lowlevel.errors import DeviceError, UsageError
from lowlevel.hardware import Limits
from lowlevel.toolchain.binary import Parameter

#: Largest grid in x, y, z: CUDA C++ Programming Guide, 'Technical Specifications per Compute Capability'.
_GRID_LIMITS = (2**31 - 1, 65535, 65535)
_BLOCK_LIMITS = (1024, 1024, 64)


class Packet:
    """One launch with everything it needs: arguments in place, configuration built."""

    def __init__(self, driver, function: Function, shape: LaunchShape, arguments: Sequence[object]):
        self.shape = shape
        self._driver, self._function = driver, function
        self._values = pack(function.name, function.entry.parameters if function.entry else None, arguments)
        self._keep = tuple(arguments)
        self._pointers = (ctypes.c_void_p * max(1, len(self._values)))(*(ctypes.addressof(v) for v in self._values))
        self._address = ctypes.addressof(self._pointers)
        self._config = configuration(driver, shape)
        self._stream = None
        self._launch = driver.cuLaunchKernelEx
        self._native = function.native

    def launch(self, stream) -> None:
        if stream is not self._stream:
            self._config.hStream = stream.native
            self._stream = stream
        status = self._launch(self._config, self._native, self._address, 0)[0]
        if status:
            raise DeviceError(describe(status.name, f"launching {self._what()}"), status.name, int(status))

    def _what(self) -> str:
        s = self.shape
        text = f"{self._function.name} with grid {s.grid}, block {s.block}, {s.shared} bytes of dynamic shared memory"
        return text + (f", cluster {s.cluster}" if s.cluster else "")


def configuration(driver, shape: LaunchShape):
    """The driver's launch configuration. Its stream is set at the launch."""
    config = driver.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = shape.grid
    config.blockDimX, config.blockDimY, config.blockDimZ = shape.block
    config.sharedMemBytes = shape.shared
    identifier = driver.CUlaunchAttributeID
    attributes = []
    if shape.cluster:
        cluster = driver.CUlaunchAttribute()
        cluster.id = identifier.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        cluster.value.clusterDim.x, cluster.value.clusterDim.y, cluster.value.clusterDim.z = shape.cluster
        attributes.append(cluster)
    if shape.cooperative:
        cooperative = driver.CUlaunchAttribute()
        cooperative.id = identifier.CU_LAUNCH_ATTRIBUTE_COOPERATIVE
        cooperative.value.cooperative = 1
        attributes.append(cooperative)
    if shape.programmatic:
        programmatic = driver.CUlaunchAttribute()
        programmatic.id = identifier.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        programmatic.value.programmaticStreamSerializationAllowed = 1
        attributes.append(programmatic)
    # The setter copies the list and leaves the count alone: both are needed, the list whole.
    config.attrs = attributes
    config.numAttrs = len(attributes)
    return config


def pack(name: str, parameters: Sequence[Parameter] | None, arguments: Sequence[object]) -> list:
    """One ctypes object per argument, holding what the kernel's parameter will hold.

    Raises UsageError when the count, a size or a kind does not match what the kernel declares.
    """
    if parameters is None:
        raise UsageError(f"{name}: the parameters are unknown, so arguments cannot be checked")
    if len(arguments) != len(parameters):
        raise UsageError(f"{name} takes {len(parameters)} arguments, {len(arguments)} given")
    return [_value(name, i, p, a) for i, (p, a) in enumerate(zip(parameters, arguments, strict=True))]


def _value(name: str, index: int, parameter: Parameter, argument: object):
    where = f"{name}, argument {index}"
    if isinstance(argument, Buffer):
        _same_size(where, parameter, 8, "a buffer's address")
        return ctypes.c_uint64(argument.address)
    if hasattr(argument, "as_parameter"):
        value = argument.as_parameter()
        _same_size(where, parameter, ctypes.sizeof(value), "a tensor map")
        return value
    if isinstance(argument, np.generic):
        _same_size(where, parameter, argument.dtype.itemsize, f"a {argument.dtype}")
        _same_kind(where, parameter, argument)
        return (ctypes.c_uint8 * parameter.size).from_buffer_copy(argument.tobytes())
    if isinstance(argument, numbers.Real) and not isinstance(argument, bool):
        return _convert(where, parameter, argument)
    raise UsageError(f"{where}: cannot pass a {type(argument).__name__}: give a buffer, a tensor map or a numpy scalar")


def _same_size(where: str, parameter: Parameter, size: int, what: str) -> None:
    if parameter.size != size:
        raise UsageError(f"{where}: {what} has {size} bytes, the parameter (.{parameter.type}) has {parameter.size}")


def _same_kind(where: str, parameter: Parameter, argument: np.generic) -> None:
    floats = argument.dtype.kind == "f"
    if parameter.type[0] != "b" and (parameter.type[0] == "f") != floats:
        raise UsageError(f"{where}: a {argument.dtype} for a parameter of type .{parameter.type}")


def _convert(where: str, parameter: Parameter, argument: numbers.Real):
    """A Python number takes the parameter's own type, if it fits exactly (integers) or is finite there (floats)."""
    kind = parameter.type[0]
    if kind == "f":
        dtype = np.dtype(f"f{parameter.size}")
    elif parameter.size in (1, 2, 4, 8) and isinstance(argument, numbers.Integral):
        # PTX declares `int` as .u32 or .b32: a negative number means the same bits.
        dtype = np.dtype(f"i{parameter.size}" if argument < 0 else f"u{parameter.size}")
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
        if not low <= argument <= high:
            raise UsageError(f"{where}: {argument} does not fit in .{parameter.type} ({low} to {high})")
    else:
        raise UsageError(f"{where}: {argument!r} for a parameter of type .{parameter.type}: give a numpy scalar")
    return (ctypes.c_uint8 * parameter.size).from_buffer_copy(np.array(argument, dtype).tobytes())


def check_shape(function: Function, shape: LaunchShape, limits: Limits, blocks_per_sm) -> None:
    """Everything about a launch that the host can know to be wrong. `blocks_per_sm()` is asked only if needed."""
    name = function.name
    _check_threads(function, shape, limits)
    for axis, size, most in zip("xyz", shape.grid, _GRID_LIMITS, strict=True):
        if not 1 <= size <= most:
            raise UsageError(f"{name}: grid {axis} is {size}, the limit is 1 to {most}")
    total = function.static_shared + shape.shared
    if total > limits.shared_per_block_optin:
        raise UsageError(
            f"{name}: {function.static_shared} bytes of static and {shape.shared} of dynamic shared memory make "
            f"{total}, a block of {limits.name} has at most {limits.shared_per_block_optin}"
        )
    if shape.cluster:
        _check_cluster(name, shape, limits, 16 if getattr(function, "large_clusters", False) else limits.max_cluster)
    if shape.programmatic and limits.capability < (9, 0):
        raise UsageError(f"{name}: programmatic serialization needs sm_90, {limits.name} is {limits.arch}")
    if shape.cooperative:
        function.allow_shared(shape.shared)
        _check_cooperative(name, shape, limits, blocks_per_sm())


def _check_threads(function: Function, shape: LaunchShape, limits: Limits) -> None:
    name, threads = function.name, int(np.prod(shape.block))
    for axis, size, most in zip("xyz", shape.block, _BLOCK_LIMITS, strict=True):
        if not 1 <= size <= most:
            raise UsageError(f"{name}: block {axis} is {size}, the limit is 1 to {most}")
    if threads > limits.threads_per_block:
        raise UsageError(f"{name}: {threads} threads a block, the limit is {limits.threads_per_block}")
    if threads > function.max_threads:
        needed = function.registers * threads
        if needed > limits.registers_per_block:
            raise UsageError(
                f"{name}: {needed:,} registers needed ({function.registers} x {threads} threads), "
                f"{limits.registers_per_block:,} available per block; max threads {function.max_threads}"
            )
        raise UsageError(f"{name}: {threads} threads a block, its __launch_bounds__ allow {function.max_threads}")


def _check_cluster(name: str, shape: LaunchShape, limits: Limits, most: int) -> None:
    size = int(np.prod(shape.cluster))
    if limits.capability < (9, 0):
        raise UsageError(f"{name}: clusters need sm_90, {limits.name} is {limits.arch}")
    if not 1 <= size <= most:
        raise UsageError(f"{name}: a cluster of {size} blocks, the limit is {most}")
    for axis, blocks, cluster in zip("xyz", shape.grid, shape.cluster, strict=True):
        if cluster < 1 or blocks % cluster:
            raise UsageError(f"{name}: grid {axis} is {blocks}, not a multiple of the cluster's {cluster}")


def _check_cooperative(name: str, shape: LaunchShape, limits: Limits, blocks_per_sm: int) -> None:
    if not limits.cooperative:
        raise UsageError(f"{name}: {limits.name} has no cooperative launch")
    grid = int(np.prod(shape.grid))
    if grid > limits.sms * blocks_per_sm:
        raise UsageError(
            f"{name}: grid {grid} > {limits.sms} SMs x {blocks_per_sm} block(s): a cooperative grid must fit at once"
        )
