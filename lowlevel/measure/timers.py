"""Three ways to time a call: replayed from a graph, in a train between two events, or alone on a cold cache."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from lowlevel.contender import Call
from lowlevel.device.protocol import Device
from lowlevel.errors import DeviceError

#: A call shorter than this is replayed from a graph. Trains of launches leave gaps of their own; for what
#: is longer they are small, and calls near the limit are still compared like with like.
GRAPH_BELOW_US = 2000.0
_GRAPH_MS = 4.0
_MOST_NODES = 4096
TIMERS = ("auto", "graph", "events", "cold")


class Train:
    """Calls launched one by one between two events. `calls` are the same call on each operand set."""

    name = "events"

    def __init__(self, device: Device, calls: Sequence[Call]):
        self.device, self.calls = device, calls
        self.stream = device.stream()
        self._start, self._end = device.event(), device.event()
        self._next = 0

    @property
    def step(self) -> int:
        """Calls in the smallest unit that can be timed."""
        return 1

    def run(self, units: int) -> None:
        for _ in range(units):
            self.calls[self._next].launch(self.stream)
            self._next = (self._next + 1) % len(self.calls)

    def segment(self, units: int, lead: int) -> float:
        """Microseconds a call, over `units` units, after an untimed lead."""
        self.run(lead)
        self._start.record(self.stream)
        self.run(units)
        self._end.record(self.stream)
        self._end.synchronize()
        return self._end.milliseconds_since(self._start) * 1e3 / (units * self.step)

    def host_us(self) -> float:
        """Microseconds that the host takes to enqueue a call, when the GPU does not hold it up."""
        self.device.synchronize()
        began = time.perf_counter()
        count = 16
        for i in range(count):
            self.calls[i % len(self.calls)].launch(self.stream)
        took = time.perf_counter() - began
        self.device.synchronize()
        return took * 1e6 / count


class Replay(Train):
    """The calls recorded in one graph, over all operand sets as often as makes some milliseconds."""

    name = "graph"

    def __init__(self, device: Device, calls: Sequence[Call], estimate_us: float):
        super().__init__(device, calls)
        passes = max(1, round(_GRAPH_MS * 1e3 / max(estimate_us, 0.5) / len(calls)))
        passes = min(passes, max(1, _MOST_NODES // len(calls)))
        self._count = passes * len(calls)
        one = device.capture(self.stream, calls[0].launch)
        self._graph = device.capture(self.stream, self._record)
        if self._graph.nodes != self._count * one.nodes:
            raise DeviceError(f"a graph of {self._count} calls has {self._graph.nodes} nodes, not {one.nodes} a call")

    def _record(self, stream) -> None:
        for i in range(self._count):
            self.calls[i % len(self.calls)].launch(stream)

    @property
    def step(self) -> int:
        return self._count

    def run(self, units: int) -> None:
        for _ in range(units):
            self._graph.launch(self.stream)


class Cold(Train):
    """One call between two events, each after a write of twice the L2's size."""

    name = "cold"

    def __init__(self, device: Device, calls: Sequence[Call]):
        super().__init__(device, calls)
        self._scratch = device.allocate(2 * device.limits.l2_bytes)

    def segment(self, units: int, lead: int) -> float:  # noqa: ARG002
        total = 0.0
        for i in range(units):
            self._scratch.fill(i & 0xFF, self.stream)
            self._start.record(self.stream)
            self.run(1)
            self._end.record(self.stream)
            self._end.synchronize()
            total += self._end.milliseconds_since(self._start)
        return total * 1e3 / units


def estimate_us(device: Device, calls: Sequence[Call]) -> float:
    """A first idea of a call's time: the shorter of two runs over up to four sets, after one that warms up."""
    train = Train(device, calls)
    train.segment(1, 0)
    count = min(4, len(calls))
    first = train.segment(1, 0)
    return min(first, train.segment(count, 0)) if first < 20_000 else first


def make_timer(device: Device, calls: Sequence[Call], wanted: str, estimate: float) -> Train:
    """The timer asked for; `auto` replays short calls from a graph. A call that cannot be captured goes one by one."""
    if wanted == "cold":
        return Cold(device, calls)
    if wanted == "events" or (wanted == "auto" and estimate >= GRAPH_BELOW_US):
        return Train(device, calls)
    try:
        return Replay(device, calls, estimate)
    except DeviceError:
        if wanted == "graph":
            raise
        return Train(device, calls)


def units_for(timer: Train, estimate: float, segment_ms: float) -> int:
    """How many units make a segment of at least this many milliseconds."""
    return max(1, math.ceil(segment_ms * 1e3 / (estimate * timer.step)))
