"""A device in plain Python: memory is numpy, time is a counter. It runs Python functions in place of kernels."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import numpy as np

from lowlevel.hardware import GPUS

_addresses = itertools.count(1 << 20, 1 << 12)


class FakeBuffer:
    """Memory whose last filling or launch is done when it is read: those before it leave nothing, and cost nothing."""

    def __init__(self, nbytes: int):
        self.nbytes, self.address = nbytes, next(_addresses)
        self._memory, self._last = np.zeros(nbytes, np.uint8), None
        self.guard_report: str | None = None
        self.freed = False

    @property
    def memory(self) -> np.ndarray:
        last, self._last = self._last, None
        if last is not None:
            self._memory[:] = last()
        return self._memory

    def overwrite(self, contents):
        """`contents()` gives all of its bytes."""
        self._last = contents

    def upload(self, array, stream=None):
        data = np.ascontiguousarray(array).view(np.uint8).reshape(-1)
        self.memory[: data.size] = data

    def download(self, dtype, shape, offset=0):
        count = int(np.prod(shape)) * np.dtype(dtype).itemsize
        return self.memory[offset : offset + count].copy().view(dtype).reshape(shape)

    def fill(self, byte, stream=None):
        self.overwrite(lambda: byte)
        if stream is not None and stream.capturing is not None:
            stream.capturing.append(lambda: self.fill(byte))

    def copy_from(self, other, stream=None):
        self.memory[:] = other.memory

    def guards_intact(self):
        return self.guard_report

    def free(self):
        self.freed = True


class FakeStream:
    handle = 7

    def __init__(self, device):
        self.device, self.capturing = device, None

    def enqueue(self, work):
        if self.capturing is not None:
            self.capturing.append(work)
        else:
            work()

    def synchronize(self):
        pass


class FakeEvent:
    at = 0.0

    def __init__(self, device):
        self.device = device

    def record(self, stream):
        self.at = self.device.now_us

    def synchronize(self):
        pass

    def milliseconds_since(self, start):
        return (self.at - start.at) / 1e3


class FakeGraph:
    def __init__(self, work, lose_nodes: int):
        self.work, self.nodes = work, len(work) - lose_nodes

    def launch(self, stream):
        for item in self.work:
            item()


class FakeDevice:
    """`now_us` moves as calls run. `lose_nodes`: graphs of more than one call report that many too few."""

    name = "fake"
    capabilities = frozenset({"time", "graph", "copy"})
    uuid = "GPU-fake"

    def __init__(self, memory_bytes: int = 1 << 34):
        self.limits = GPUS["H200"]
        self.now_us = 0.0
        self.lose_nodes = 0
        self.left = memory_bytes
        self.buffers: list[FakeBuffer] = []

    def allocate(self, nbytes):
        from lowlevel.errors import DeviceError

        if nbytes > self.left:
            raise DeviceError("out of memory", "CUDA_ERROR_OUT_OF_MEMORY", 2)
        self.left -= nbytes
        self.buffers.append(FakeBuffer(nbytes))
        return self.buffers[-1]

    def stream(self):
        return FakeStream(self)

    def event(self):
        return FakeEvent(self)

    def capture(self, stream, work):
        stream.capturing = []
        work(stream)
        recorded, stream.capturing = stream.capturing, None
        return FakeGraph(recorded, self.lose_nodes if len(recorded) > 1 else 0)

    def load(self, binary):
        """Of what is compiled for a GPU it has the comparison of two buffers."""
        return SimpleNamespace(function={"same": _same}.__getitem__)

    def bind(self, function, shape, arguments):
        return SimpleNamespace(launch=lambda stream: stream.enqueue(lambda: function(*arguments)))

    def synchronize(self):
        pass


def _same(a, b, nbytes, differ):
    """cu/support/same.cu."""
    if not np.array_equal(a.memory[:nbytes], b.memory[:nbytes]):
        differ.memory[0] = 1


class FakeContender:
    """Computes `function(inputs) -> C` and takes `microseconds` (a number, or a function of the call's number)."""

    workspace_bytes = 0

    def __init__(self, name, function, microseconds=10.0):
        self.name, self.function, self.microseconds = name, function, microseconds
        self.launches: list[int] = []

    def bind(self, device, problem, buffers):
        operands = {o.name: o for o in problem.operands()}
        output = operands["C"]

        def computed():
            arrays = {
                name: buffers[name].download(o.dtype, (o.shape[0], o.leading))[:, : o.shape[1]]
                for name, o in operands.items()
                if not o.output
            }
            result = np.full((output.shape[0], output.leading * output.dtype.itemsize), 0xFF, np.uint8)
            result.view(output.dtype)[:, : output.shape[1]] = self.function(arrays)
            return result.reshape(-1)

        def run():
            buffers["C"].overwrite(computed)
            taken = self.microseconds(len(self.launches)) if callable(self.microseconds) else self.microseconds
            self.launches.append(buffers["C"].address)
            device.now_us += taken

        return SimpleNamespace(launch=lambda stream: stream.enqueue(run))
