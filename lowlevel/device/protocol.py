"""What the rest of the project may ask of a device.

Two devices stand behind this: the CUDA driver (`device/cuda`), and an interpreter of PTX on the
CPU. What one can do is said by its `capabilities`; nobody asks which device it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from lowlevel.hardware import Limits
    from lowlevel.tensormap import TensorMap
    from lowlevel.toolchain.binary import Binary

#: time: events measure elapsed time. graph: launches can be captured and replayed. clusters, cooperative,
#: programmatic: the launch attributes of those names. tensor_map: TMA descriptors. copy: a device-side copy.
#: count: counts memory transactions. check: reports races and out-of-bounds accesses.
CAPABILITIES = frozenset(
    {"time", "graph", "clusters", "cooperative", "programmatic", "tensor_map", "copy", "count", "check"}
)


@dataclass(frozen=True)
class LaunchShape:
    """Everything of a launch but its kernel, arguments and stream. Sizes in blocks, threads and bytes.

    `grid` counts blocks, also in a cluster launch, and is then a multiple of `cluster`.
    """

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int = 0
    cluster: tuple[int, int, int] | None = None
    cooperative: bool = False
    programmatic: bool = False


class Buffer(Protocol):
    """Device memory between two guard zones. `address` is the first byte of the payload, 256-byte aligned."""

    address: int
    nbytes: int

    def upload(self, array: np.ndarray, stream: Stream | None = None) -> None: ...
    def download(self, dtype: Any, shape: Sequence[int], offset: int = 0) -> np.ndarray: ...
    def fill(self, byte: int, stream: Stream | None = None) -> None: ...
    def copy_from(self, other: Buffer, stream: Stream | None = None) -> None: ...

    def part(self, offset: int, nbytes: int) -> Buffer:
        """`nbytes` of it from byte `offset` on, without guards; freed with the whole."""

    def guards_intact(self) -> str | None:
        """None, or one line saying which guard bytes a kernel overwrote and by how far it missed."""

    def free(self) -> None: ...


class Stream(Protocol):
    def synchronize(self) -> None: ...


class Event(Protocol):
    def record(self, stream: Stream) -> None: ...
    def synchronize(self) -> None: ...

    def milliseconds_since(self, start: Event) -> float: ...


class Graph(Protocol):
    """Captured launches, ready to replay. `nodes` is how many kernel and copy nodes were captured."""

    nodes: int

    def launch(self, stream: Stream) -> None: ...


class Function(Protocol):
    """A kernel in a loaded module. `registers`, `static_shared`, `local` are what the device says of it."""

    name: str
    registers: int
    static_shared: int
    local: int


class Module(Protocol):
    """A loaded binary. arch: what its code was compiled for, which may be older than the device."""

    arch: str

    def function(self, entry: str) -> Function:
        """Raises UsageError naming the module's kernels when there is no such entry."""


class Packet(Protocol):
    """A launch bound once: function, shape and argument values. Launching it again does no work in Python
    beyond the driver call."""

    shape: LaunchShape

    def launch(self, stream: Stream) -> None: ...


#: What a kernel can be given: a buffer (its address is passed), a numpy scalar (its bytes are passed, and its
#: size must match the parameter), or a tensor map over a buffer.
Argument = Any


class Device(Protocol):
    name: str
    limits: Limits
    capabilities: frozenset[str]

    def allocate(self, nbytes: int) -> Buffer: ...
    def stream(self) -> Stream: ...
    def event(self) -> Event: ...
    def load(self, binary: Binary) -> Module: ...
    def tensor_map(self, spec: TensorMap, buffer: Buffer) -> Argument: ...
    def blocks_per_sm(self, function: Function, threads: int, shared: int) -> int: ...

    def bind(self, function: Function, shape: LaunchShape, arguments: Sequence[Argument]) -> Packet:
        """Checks everything that can be checked on the host: argument count and sizes, threads, shared memory
        (static + dynamic), cluster, cooperative residency. Raises UsageError with the value and the limit."""

    def capture(self, stream: Stream, work: Callable[[Stream], None]) -> Graph:
        """Records what `work` enqueues on `stream` without running it."""

    def synchronize(self) -> None: ...
    def close(self) -> None: ...
