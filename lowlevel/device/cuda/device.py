"""The CUDA driver as a `Device`: one GPU, its primary context, and what was made in it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

from lowlevel.device.cuda.attributes import limits
from lowlevel.device.cuda.driver import bindings, device_count
from lowlevel.device.cuda.errors import check
from lowlevel.device.cuda.launch import Packet, check_shape
from lowlevel.device.cuda.memory import Borrowed, Buffer, Pinned
from lowlevel.device.cuda.module import Function, Module
from lowlevel.device.cuda.stream import BorrowedStream, Event, Graph, Stream
from lowlevel.device.cuda.tensormap import EncodedMap
from lowlevel.device.protocol import LaunchShape
from lowlevel.errors import UsageError
from lowlevel.tensormap import TensorMap
from lowlevel.toolchain.binary import Binary


class CudaDevice:
    """GPU number `ordinal`, as CUDA_VISIBLE_DEVICES numbers them.

    Uses the primary context, which cuBLAS and frameworks in the same process share.
    """

    def __init__(self, ordinal: int = 0):
        self.driver = bindings()
        count = device_count()
        if not 0 <= ordinal < count:
            raise UsageError(f"no GPU number {ordinal}: there are {count}, numbered from 0")
        self.ordinal = ordinal
        self.native = check(self.driver.cuDeviceGet(ordinal), f"opening GPU {ordinal}")
        self._context = check(self.driver.cuDevicePrimaryCtxRetain(self.native), "retaining the primary context")
        check(self.driver.cuCtxSetCurrent(self._context), "making the context current")
        self.limits = limits(self.driver, self.native)
        self.name = self.limits.name
        self.capabilities = self._capabilities()
        self._pinned: Pinned | None = None
        self._streams: list[Stream] = []
        self._modules: list[Module] = []
        self._default = self.stream()

    def _capabilities(self) -> frozenset[str]:
        has = {"time", "graph", "copy"}
        if self.limits.cooperative:
            has.add("cooperative")
        if self.limits.capability >= (9, 0):
            has |= {"clusters", "programmatic", "tensor_map"}
        return frozenset(has)

    @property
    def uuid(self) -> str:
        """`GPU-...`, or `MIG-...` for a slice, as nvidia-smi prints it."""
        raw = check(self.driver.cuDeviceGetUuid(self.native), "reading the UUID").bytes[:16].hex()
        return f"GPU-{raw[:8]}-{raw[8:12]}-{raw[12:16]}-{raw[16:20]}-{raw[20:]}"

    def allocate(self, nbytes: int) -> Buffer:
        return Buffer(self, nbytes)

    def borrow(self, address: int, nbytes: int) -> Borrowed:
        """Memory that someone else owns, as a buffer."""
        return Borrowed(self, address, nbytes)

    def borrow_stream(self, handle: int) -> BorrowedStream:
        """A stream that someone else owns."""
        return BorrowedStream(self.driver, handle)

    @contextlib.contextmanager
    def current(self) -> Iterator[None]:
        """Makes this GPU's context the calling thread's, and gives back the one that the thread had."""
        check(self.driver.cuCtxPushCurrent(self._context), "making the context current")
        try:
            yield
        finally:
            check(self.driver.cuCtxPopCurrent(), "giving back the thread's context")

    def pinned(self) -> Pinned:
        if self._pinned is None:
            self._pinned = Pinned(self.driver)
        return self._pinned

    def handle_of(self, stream: Stream | None):
        return (stream or self._default).native

    def stream(self) -> Stream:
        self._streams.append(Stream(self.driver))
        return self._streams[-1]

    def event(self) -> Event:
        return Event(self.driver)

    def load(self, binary: Binary) -> Module:
        self._modules.append(Module(self.driver, binary, self.limits.capability, self.name))
        return self._modules[-1]

    def tensor_map(self, spec: TensorMap, buffer: Buffer) -> EncodedMap:
        if "tensor_map" not in self.capabilities:
            raise UsageError(f"tensor maps need sm_90, {self.name} is {self.limits.arch}")
        return EncodedMap(self.driver, spec, buffer.address)

    def blocks_per_sm(self, function: Function, threads: int, shared: int) -> int:
        doing = f"asking how many blocks of {function.name} fit an SM"
        return check(self.driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(function.native, threads, shared), doing)

    def bind(self, function: Function, shape: LaunchShape, arguments: Sequence[object]) -> Packet:
        threads = shape.block[0] * shape.block[1] * shape.block[2]
        check_shape(function, shape, self.limits, lambda: self.blocks_per_sm(function, threads, shape.shared))
        function.allow_shared(shape.shared)
        return Packet(self.driver, function, shape, arguments)

    def capture(self, stream: Stream, work: Callable[[Stream], None]) -> Graph:
        return Graph(self.driver, stream, work)

    def synchronize(self) -> None:
        check(self.driver.cuCtxSynchronize(), "waiting for the GPU")

    def close(self) -> None:
        if self._context is None:
            return
        if self._pinned is not None:
            self._pinned.free()
        for thing in (*self._modules, *self._streams):
            thing.close()
        self.driver.cuDevicePrimaryCtxRelease(self.native)
        self._context = None


def open_device(ordinal: int = 0) -> CudaDevice:
    """GPU `ordinal`. Raises NoDriverError where there is none, UsageError for a number that does not exist."""
    return CudaDevice(ordinal)


def open_beside(ordinal: int = 0) -> CudaDevice:
    """`open_device` where others use GPUs too: the calling thread keeps the context that it had. Work goes inside
    `with device.current()`."""
    driver = bindings()
    before = check(driver.cuCtxGetCurrent(), "asking for the current context")
    try:
        return CudaDevice(ordinal)
    finally:
        check(driver.cuCtxSetCurrent(before), "giving back the thread's context")
