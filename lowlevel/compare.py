"""Comparing two device results without bringing them home: cu/support/compare.cu and same.cu."""

from __future__ import annotations

import weakref
from dataclasses import dataclass

import numpy as np

from lowlevel import paths
from lowlevel.device.protocol import Buffer, Device, LaunchShape, Stream
from lowlevel.dtypes import ELEMENTS
from lowlevel.problems.base import Problem
from lowlevel.toolchain.arch import parse_arch
from lowlevel.toolchain.binary import Request
from lowlevel.toolchain.build import build_here

_THREADS = 256
#: What is loaded of cu/support, by device.
_functions: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


@dataclass(frozen=True)
class Comparison:
    """A trusted result, and |A||B| element by element, both in the output's type and leading dimension."""

    result: Buffer
    size: Buffer


def support_function(device: Device, source: str, entry: str, **defines: int):
    """A kernel of cu/support, compiled for this device."""
    pairs = tuple((name, str(value)) for name, value in defines.items())
    loaded = _functions.setdefault(device, {})
    if (source, entry, pairs) not in loaded:
        path = paths.kernel_root() / "cu" / "support" / source
        binary = build_here(Request("cuda", path, parse_arch(device.limits.capability), (entry,), pairs))
        loaded[source, entry, pairs] = device.load(binary).function(entry)
    return loaded[source, entry, pairs]


def same_on_device(device: Device, stream: Stream, a: Buffer, b: Buffer, differ: Buffer) -> bool:
    """Whether two buffers of one size, both done with, hold the same bytes. differ: four bytes for the answer."""
    differ.fill(0, stream)
    arguments = [a, b, np.int64(a.nbytes), differ]
    device.bind(support_function(device, "same.cu", "same"), _shape(device), arguments).launch(stream)
    stream.synchronize()
    return not differ.download(np.uint32, (1,))[0]


def compare_on_device(device: Device, problem: Problem, output: Buffer, trusted: Comparison, exact: bool) -> str | None:
    """None when every element of `output` lies within both results' bounds of `trusted`, else one line.

    Either result may be off by its bound, so they may differ by twice it. exact: the bits must be equal.
    """
    operand = problem.operands()[-1]
    element = ELEMENTS[operand.element]
    function = support_function(device, "compare.cu", "compare", **{f"OUT_{operand.element.upper()}": 1})
    found = device.allocate(16)
    found.upload(np.array([0, 2**64 - 1], np.uint64))
    rows, columns = operand.shape
    arguments = [
        output,
        trusted.result,
        trusted.size,
        np.int64(rows),
        np.int64(columns),
        np.int64(operand.leading),
        np.float32(0.0 if exact else 2 * problem.relative_bound),
        np.float32(0.0 if exact else 2 * problem.accumulation_bound),
        found,
    ]
    stream = device.stream()
    device.bind(function, _shape(device), arguments).launch(stream)
    stream.synchronize()
    bad, first = found.download(np.uint64, (2,))
    found.free()
    if not bad:
        return None
    row, column = divmod(int(first), columns)
    got, wanted = (
        b.download(operand.dtype, (1,), (row * operand.leading + column) * element.bytes)
        for b in (output, trusted.result)
    )
    return (
        f"C[{row}][{column}] is {float(got[0]):.9g}, the library has {float(wanted[0]):.9g}; "
        f"{bad} of {rows * columns} wrong"
    )


def _shape(device: Device) -> LaunchShape:
    """Enough blocks to keep every SM at its memory."""
    return LaunchShape((8 * device.limits.sms, 1, 1), (_THREADS, 1, 1))
