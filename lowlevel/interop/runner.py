"""`lowlevel.run`: one kernel, on arrays of others."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from lowlevel.catalog.entry import Variant
from lowlevel.catalog.select import one_kernel
from lowlevel.device.cuda.memory import owner
from lowlevel.dtypes import ELEMENTS
from lowlevel.errors import UsageError
from lowlevel.interop.arrays import View, recognise
from lowlevel.interop.result import DeviceArray
from lowlevel.interop.session import Session, session
from lowlevel.interop.shapes import Matrix, matrix, problem_for
from lowlevel.interop.streams import handle_of
from lowlevel.problems.base import Problem
from lowlevel.problems.epilogue import EPILOGUES
from lowlevel.problems.gemm import LAYOUTS, SCALES


def run(
    name: str,
    *arrays,
    out=None,
    stream=None,
    layout: str | None = None,
    device: int | None = None,
    epilogue: str | None = None,
    bias=None,
    residual=None,
    scale_a=None,
    scale_b=None,
):
    """Computes with one kernel: `lowlevel.run("gemm/02_tiled", a, b)` is A B, `run("transpose/01_naive", a)` its A^T.

    name: a kernel (`ptx:gemm/02_tiled`, `gemm/02`) or a row's whole name; the arrays' type chooses among its variants.
    arrays: the inputs, two-dimensional. numpy arrays are copied to the GPU, and the result back. Device arrays of any
    library (`__dlpack__` or `__cuda_array_interface__`) are used where they lie, row-major with any leading dimension;
    the result is a new DeviceArray. out: where to write the result instead; returned.
    stream: on which to launch device arrays: a handle, or an object that has one; by default the legacy default stream.
    The call returns when the work is enqueued; a producer's stream that an array names is waited for on the GPU.
    layout: of a gemm: NN (default), NT, TN, TT. device: the GPU for numpy arrays (default 0).
    epilogue: of a gemm that has them, what is done to A B before it is stored: `bias`, `bias_relu`, `bias_silu` with
    bias=, of N elements, or `residual` with residual=, M x N without gaps. bias= or residual= alone mean the epilogue
    of that name.
    scale_a, scale_b: of a gemm of fp8, what A and B are multiplied by (1): a number, or an array of one float32.

    Raises UsageError, in one line, for arrays, shapes or strides that the kernel does not take, and the other errors
    of lowlevel.errors where compiling or launching fails.
    """
    handle = handle_of(stream)
    given = [recognise(array, _called(number), handle) for number, array in enumerate(arrays)]
    scales = {word: scale for word, scale in (("scale_a", scale_a), ("scale_b", scale_b)) if scale is not None}
    addends = {word: array for word, array in (("bias", bias), ("residual", residual)) if array is not None}
    if not arrays:
        raise UsageError(f"run('{name}') needs arrays")
    variant = finished(choose(name, given[0].dtype, layout), epilogue, tuple(addends))
    factors = scales_of(variant, scales, handle)
    added = [_as_row(recognise(array, word, handle)) for word, array in addends.items()]
    target = None if out is None else recognise(out, "out", handle)
    placed = [*given, *added, *(f for f in factors.values() if isinstance(f, View))]  # numbers can be anywhere
    everything = placed if target is None else [*placed, target]
    on_host = _all_on_host(everything)
    given += [*factors.values(), *added]
    called = [*(_called(number) for number in range(len(arrays))), *factors, *addends]
    sizes = [_ONE if where in factors else matrix(array, where) for array, where in zip(given, called, strict=True)]
    problem = problem_for(variant, sizes, None if target is None else matrix(target, "out"))
    _check_types(variant, problem, dict(zip(called, given, strict=True)), target)
    held = session(_ordinal(everything, device))
    with held.lock, held.device.current():
        if on_host:
            return _on_host(held, variant, problem, given, out, handle)
        return _on_device(held, variant, problem, given, target, out, handle)


def _called(number: int) -> str:
    return f"array {number + 1}"


def _as_row(array: np.ndarray | View) -> np.ndarray | View:
    """A vector as a matrix of one row; a matrix as it is."""
    if len(array.shape) != 1:
        return array
    if isinstance(array, np.ndarray):
        return array[None, :]
    (count,) = array.shape
    return replace(array, shape=(1, count), strides=(count * array.dtype.itemsize, *array.strides))


#: A scale, as a matrix.
_ONE = Matrix((1, 1), 1)


def scales_of(variant: Variant, scales: Mapping[str, object], stream: int) -> dict[str, np.ndarray | View]:
    """What A and B are multiplied by, as matrices of one element: 1 where `scales` says nothing. Empty for a variant
    that scales neither, which is not to be told of any."""
    if not variant.type.scaled:
        if scales:
            raise UsageError(f"{variant.kernel.label} has no {' and no '.join(scales)} for {variant.type.name}")
        return {}
    return {name: _scale(scales.get(name, 1.0), name, stream) for name in SCALES}


def _scale(value: object, where: str, stream: int) -> np.ndarray | View:
    if isinstance(value, int | float | np.number):
        return np.full((1, 1), value, np.float32)
    array = recognise(value, where, stream)
    if math.prod(array.shape) != 1:
        raise UsageError(f"{where} has {math.prod(array.shape)} elements: give one number")
    if isinstance(array, np.ndarray):
        return array.reshape(1, 1)
    return replace(array, shape=(1, 1), strides=(array.dtype.itemsize,) * 2)


def _all_on_host(arrays: Sequence[np.ndarray | View]) -> bool:
    host = [isinstance(array, np.ndarray) for array in arrays]
    if any(host) and not all(host):
        raise UsageError("some arrays are in host memory and some on a GPU: move them to one side")
    return all(host)


def choose(name: str, dtype: np.dtype, layout: str | None) -> Variant:
    """The first variant of the kernel that takes these elements in this layout. A layout in the name's bracket
    counts as given; without any it is NN, and never another because a kernel has no NN."""
    found = _candidates(name)
    typed = [v for v in found if ELEMENTS[v.type.operand].numpy == dtype]
    if not typed:
        takes = ", ".join(dict.fromkeys(str(ELEMENTS[v.type.operand].numpy) for v in found))
        raise UsageError(f"{name} takes {takes}, not {dtype}")
    has = dict.fromkeys(v.layout for v in typed if v.layout)
    if layout and not has:
        raise UsageError(f"{name} has no layouts, but layout='{layout}' is given")
    named = [word for word in name.partition("[")[2].rstrip("]").split(",") if word in LAYOUTS]
    wanted = layout or (named[0] if named else "NN")
    for variant in typed:
        if variant.layout in ("", wanted):
            return variant
    raise UsageError(f"{name} has no layout {wanted} for {dtype}; it has {', '.join(has)}: give layout=")


def finished(variant: Variant, epilogue: str | None, addends: tuple[str, ...]) -> Variant:
    """The variant with the epilogue asked for, by its name or by what it adds (`addends`: bias, residual or neither);
    the one of its own name where neither is given."""
    if epilogue is None:
        epilogue = addends[0] if addends and variant.epilogue == "none" else variant.epilogue
    label, has = variant.kernel.label, variant.kernel.epilogues
    if epilogue not in has:
        raise UsageError(f"{label} has no epilogue '{epilogue}'; it has: {', '.join(has)}")
    if addends and addends != (EPILOGUES[epilogue].addend,):
        takes = f"takes {EPILOGUES[epilogue].addend}=" if EPILOGUES[epilogue].addend else "adds nothing"
        raise UsageError(f"epilogue '{epilogue}' {takes}, given: {', '.join(f'{word}=' for word in addends)}")
    return replace(variant, epilogue=epilogue)


@functools.lru_cache(maxsize=256)
def _candidates(name: str) -> tuple[Variant, ...]:
    return tuple(one_kernel(name))


def _check_types(variant: Variant, problem: Problem, given: Mapping, target: np.ndarray | View | None) -> None:
    """given: by what they are called."""
    *inputs, output = problem.operands()
    pairs = [(o, array, where) for o, (where, array) in zip(inputs, given.items(), strict=True)]
    if target is not None:
        pairs.append((output, target, "out"))
    for operand, array, where in pairs:
        if array.dtype != operand.dtype:
            raise UsageError(
                f"{where} is {array.dtype}, {variant.kernel.label} takes {operand.dtype} for {operand.name}"
            )


def _ordinal(arrays: Sequence[np.ndarray | View], device: int | None) -> int:
    """The GPU on which all arrays lie."""
    views = [array for array in arrays if isinstance(array, View)]
    found = {owner(v.address) if v.ordinal is None else v.ordinal for v in views}
    if device is not None:
        found.add(device)
    if len(found) > 1:
        raise UsageError(f"the arrays and device= name several GPUs: {', '.join(map(str, sorted(found)))}")
    return found.pop() if found else 0


def _on_host(held: Session, variant: Variant, problem: Problem, given: Sequence[np.ndarray], out, handle: int):
    """Up, launch, down; nothing stays on the GPU."""
    if out is not None and not (isinstance(out, np.ndarray) and out.flags.writeable):
        raise UsageError("out must be a numpy array that can be written")
    *inputs, output = problem.operands()
    buffers = {}
    try:
        for operand in problem.operands():
            buffers[operand.name] = held.device.allocate(operand.nbytes)
        for operand, array in zip(inputs, given, strict=True):
            buffers[operand.name].upload(array)
        held.launch(variant, problem, buffers, handle)
        result = buffers[output.name].download(output.dtype, output.shape)
    finally:
        for buffer in buffers.values():
            buffer.free()
    if out is None:
        return result
    out[...] = result
    return out


def _on_device(
    held: Session, variant: Variant, problem: Problem, given: Sequence[View], target: View | None, out, handle: int
):
    *inputs, output = problem.operands()
    buffers = {
        o.name: held.number(v) if isinstance(v, np.ndarray) else held.device.borrow(v.address, _extent(o))
        for o, v in zip(inputs, given, strict=True)
    }
    if target is not None:
        _check_target(target, [(buffers[o.name], o.name) for o in inputs], output)
        buffers[output.name] = held.device.borrow(target.address, _extent(output))
    else:
        buffers[output.name] = held.device.allocate(output.nbytes)
    for array in given if target is None else [*given, target]:
        if isinstance(array, View) and array.stream not in (None, handle):
            held.stream(handle).wait_for(held.stream(array.stream))
    try:
        held.launch(variant, problem, buffers, handle)
    except BaseException:
        if target is None:
            buffers[output.name].free()
        raise
    return (
        out
        if target is not None
        else DeviceArray(held.device, buffers[output.name], output.shape, output.dtype, handle)
    )


def _extent(operand) -> int:
    """Bytes from the first element to the last: the last row's padding may not be ours."""
    return ((operand.shape[0] - 1) * operand.leading + operand.shape[1]) * operand.dtype.itemsize


def _check_target(target: View, inputs: Sequence[tuple], output) -> None:
    if target.readonly:
        raise UsageError("out is read-only")
    for buffer, name in inputs:
        if buffer.address < target.address + _extent(output) and target.address < buffer.address + buffer.nbytes:
            raise UsageError(f"out overlaps {name}: the kernel would read what it has written")
