"""What calls on one GPU share: its device, loaded kernels, bound launches."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping

import numpy as np

from lowlevel import catalog, tuned
from lowlevel.catalog.entry import Variant
from lowlevel.contender import KernelContender, Packets
from lowlevel.device.cuda.device import open_beside
from lowlevel.device.protocol import Buffer
from lowlevel.problems.base import Problem
from lowlevel.toolchain.build import build_here

#: Launches kept bound: loops over a model's layers find theirs again.
BOUND = 256

_sessions: dict[int, Session] = {}
_opening = threading.Lock()


class Session:
    """`lock` is held around a call: a bound launch carries its stream, and two threads may share it."""

    def __init__(self, device):
        self.device = device
        self.lock = threading.Lock()
        self._kernels: dict[str, KernelContender] = {}
        self._bound: OrderedDict[tuple, Packets] = OrderedDict()
        self._streams: dict[int, object] = {}
        self._numbers: OrderedDict[bytes, Buffer] = OrderedDict()

    def kernel(self, variant: Variant) -> KernelContender:
        """Compiled in this process, or found in the cache, and loaded once."""
        if variant.name not in self._kernels:
            binary = build_here(catalog.request(variant, self.device.limits.arch))
            self._kernels[variant.name] = KernelContender(variant, self.device.load(binary))
        return self._kernels[variant.name]

    def stream(self, handle: int):
        if handle not in self._streams:
            self._streams[handle] = self.device.borrow_stream(handle)
        return self._streams[handle]

    def number(self, value: np.ndarray) -> Buffer:
        """A host array of one element in device memory, kept for calls with the same."""
        key = value.tobytes()
        if key not in self._numbers:
            self._numbers[key] = self.device.allocate(value.nbytes)
            self._numbers[key].upload(value)
        self._numbers.move_to_end(key)
        while len(self._numbers) > BOUND:
            self._numbers.popitem(last=False)[1].free()
        return self._numbers[key]

    def launch(self, variant: Variant, problem: Problem, buffers: Mapping[str, Buffer], handle: int) -> None:
        """Enqueues one call. Streams do not share a bound launch: it may own scratch memory."""
        variant = tuned.suited(variant, problem, self.device.limits)
        key = (variant.name, problem, handle, *(buffers[o.name].address for o in problem.operands()))
        packets = self._bound.pop(key, None)
        if packets is None:
            packets = self.kernel(variant).bind(self.device, problem, buffers)
        self._bound[key] = packets
        packets.launch(self.stream(handle))
        while len(self._bound) > BOUND:
            self._bound.popitem(last=False)[1].free()


def session(ordinal: int) -> Session:
    """The session of a GPU, opened at its first call and kept."""
    with _opening:
        if ordinal not in _sessions:
            _sessions[ordinal] = Session(open_beside(ordinal))
        return _sessions[ordinal]
