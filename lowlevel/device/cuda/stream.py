"""Streams, events and captured graphs."""

from __future__ import annotations

from collections.abc import Callable

from lowlevel.device.cuda.errors import check


class Stream:
    """A stream that does not wait for the legacy default stream. `handle` is its address, for other libraries."""

    def __init__(self, driver):
        self._driver = driver
        flags = driver.CUstream_flags.CU_STREAM_NON_BLOCKING
        self.native = check(driver.cuStreamCreate(flags), "creating a stream")
        self.handle = int(self.native)

    def synchronize(self) -> None:
        check(self._driver.cuStreamSynchronize(self.native), "waiting for a stream")

    def wait_for(self, other: Stream) -> None:
        """What is enqueued from now on runs after what `other` holds now; the host does not wait."""
        event = Event(self._driver)
        event.record(other)
        check(self._driver.cuStreamWaitEvent(self.native, event._native, 0), "making a stream wait for another")
        event.close()

    def close(self) -> None:
        if self.native is not None:
            self._driver.cuStreamDestroy(self.native)
            self.native = None


class BorrowedStream(Stream):
    """A stream that someone else made and will destroy. 1 is the legacy default stream, 2 the thread's own."""

    def __init__(self, driver, handle: int):
        self._driver = driver
        self.native, self.handle = driver.CUstream(handle), handle

    def close(self) -> None:
        """Its owner does."""


class Event:
    """A point in a stream's work, with a time."""

    def __init__(self, driver):
        self._driver = driver
        self._native = check(driver.cuEventCreate(0), "creating an event")

    def record(self, stream: Stream) -> None:
        check(self._driver.cuEventRecord(self._native, stream.native), "recording an event")

    def synchronize(self) -> None:
        check(self._driver.cuEventSynchronize(self._native), "waiting for an event")

    def milliseconds_since(self, start: Event) -> float:
        return check(self._driver.cuEventElapsedTime(start._native, self._native), "reading an event's time")

    def close(self) -> None:
        if self._native is not None:
            self._driver.cuEventDestroy(self._native)
            self._native = None


class Graph:
    """Launches recorded from a stream, replayed by one call. `nodes` counts them."""

    def __init__(self, driver, stream: Stream, work: Callable[[Stream], None]):
        self._driver = driver
        self._exec = None
        mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        check(driver.cuStreamBeginCapture(stream.native, mode), "beginning a capture")
        try:
            work(stream)
        finally:
            captured = driver.cuStreamEndCapture(stream.native)
        self._graph = check(captured, "ending a capture")
        _, self.nodes = check(driver.cuGraphGetNodes(self._graph, 0), "counting a graph's nodes")
        self._exec = check(driver.cuGraphInstantiate(self._graph, 0), "instantiating a graph")

    def launch(self, stream: Stream) -> None:
        check(self._driver.cuGraphLaunch(self._exec, stream.native), "launching a graph")

    def close(self) -> None:
        if self._exec is not None:
            self._driver.cuGraphExecDestroy(self._exec)
            self._driver.cuGraphDestroy(self._graph)
            self._exec = None
