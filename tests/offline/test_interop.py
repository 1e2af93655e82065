"""lowlevel.run: what it makes of other libraries' arrays, on a device of plain Python and against a stub driver."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest
from fake_device import FakeBuffer, FakeDevice, FakeStream

import lowlevel
from lowlevel.catalog.entry import Kernel, Launch, Rule
from lowlevel.dtypes import BF16, FP16, FP32
from lowlevel.errors import UsageError
from lowlevel.interop import arrays, dlpack, runner, session, shapes, streams
from lowlevel.interop.result import DeviceArray

ROOT = Path(__file__).parents[2]


class SharedStream(FakeStream):
    """A FakeStream that notes whom it waited for."""

    def __init__(self, device, handle):
        super().__init__(device)
        self.handle = handle

    def wait_for(self, other):
        self.device.waits.append((self.handle, other.handle))


class SharedBuffer(FakeBuffer):
    """A FakeBuffer whose memory has the address that it says, and is fenced."""

    def __init__(self, nbytes, device):
        super().__init__(nbytes)
        room = np.zeros(nbytes + 256, np.uint8)
        start = -room.ctypes.data % 256
        self._memory = room[start : start + nbytes]
        self.address = self._memory.ctypes.data
        self.device = device

    def free(self):
        super().free()
        self.device.freed.append(self.address)


class SharedDevice(FakeDevice):
    """A FakeDevice whose memory is the host's, so that addresses can be followed. It runs `compute(arguments)`."""

    ordinal = 0

    def __init__(self):
        super().__init__()
        self.waits, self.freed, self.launches, self.bound, self.inside = [], [], [], 0, 0

    def allocate(self, nbytes):
        self.buffers.append(SharedBuffer(nbytes, self))
        return self.buffers[-1]

    def borrow(self, address, nbytes):
        return SimpleNamespace(address=address, nbytes=nbytes, free=lambda: self.freed.append("borrowed"))

    def borrow_stream(self, handle):
        return SharedStream(self, handle)

    @contextmanager
    def current(self):
        self.inside += 1
        yield
        self.inside -= 1

    def load(self, binary):
        return SimpleNamespace(function=lambda entry: SimpleNamespace(name=entry), arch="sm_90")

    def bind(self, function, shape, arguments):
        assert self.inside
        self.bound += 1

        def launch(stream):
            self.launches.append((function.name, stream.handle, shape))
            compute(function.name, arguments)

        return SimpleNamespace(launch=launch)


def elements(buffer, rows, columns, leading, dtype=np.float32):
    size = np.dtype(dtype).itemsize
    memory = (ctypes.c_uint8 * (((rows - 1) * leading + columns) * size)).from_address(buffer.address)
    return np.ndarray((rows, columns), dtype, memory, 0, (leading * size, size))


def addend(parameter, m, n):
    """What an epilogue's struct points at: bias, residual or nothing."""
    bias, residual = (SimpleNamespace(address=int(parameter[name])) for name in ("bias", "residual"))
    assert not (bias.address and residual.address)
    if bias.address:
        return elements(bias, 1, n, n)
    return elements(residual, m, n, parameter["ld_residual"]) if residual.address else 0


def compute(entry, arguments):
    """The catalog's gemm NN and transpose, on the memory that the arguments point at."""
    if entry == "gemm":
        a, b, c, m, n, k, lda, ldb, ldc, *epilogue = arguments
        sums = elements(a, m, k, lda) @ elements(b, k, n, ldb)
        for parameter in epilogue:
            sums = parameter["alpha"] * sums + addend(parameter, m, n)
        elements(c, m, n, ldc)[:] = sums
    elif entry == "transpose":
        a, c, m, n, lda, ldc = arguments
        elements(c, n, m, ldc, np.uint32)[:] = elements(a, m, n, lda, np.uint32).T


@pytest.fixture
def device(monkeypatch):
    made = SharedDevice()
    monkeypatch.setattr(session, "_sessions", {0: session.Session(made)})
    monkeypatch.setattr(runner, "owner", lambda address: 0)
    monkeypatch.setattr(session, "build_here", lambda request: request)
    return made


def aligned(shape, dtype=np.float32, leading=None):
    """Random numbers in memory that starts at a multiple of 256, rows `leading` elements apart, 77 between."""
    rows, columns = shape
    room = np.full(rows * (leading or columns) + 256, 77, dtype)
    start = (-room.ctypes.data % 256) // room.itemsize
    array = room[start : start + rows * (leading or columns)].reshape(rows, -1)[:, :columns]
    array[:] = np.random.default_rng(rows).integers(-4, 5, shape)
    return array


class Interface:
    """A device array as the CUDA Array Interface shows it."""

    def __init__(self, array, stream=None, readonly=False, **more):
        self.array = array
        strides = None if array.flags.c_contiguous else array.strides
        self.__cuda_array_interface__ = {
            "shape": array.shape, "typestr": array.dtype.str, "data": (array.ctypes.data, readonly),
            "strides": strides, "version": 3, "stream": stream, **more,
        }  # fmt: skip


class Packed:
    """A device array as DLPack shows it."""

    def __init__(self, array, kind=dlpack.CUDA, number=0):
        self.array, self.kind, self.number, self.asked = array, kind, number, []

    def __dlpack_device__(self):
        return self.kind, self.number

    def __dlpack__(self, *, stream=None):  # a producer from before version 1
        self.asked.append(stream)
        a = self.array
        return dlpack.capsule(a.ctypes.data, a.shape, a.dtype, self.kind, self.number, self)


def refused(*arguments, **words) -> str:
    with pytest.raises(UsageError) as raised:
        lowlevel.run(*arguments, **words)
    assert len(str(raised.value).splitlines()) == 1
    return str(raised.value)


def test_importing_lowlevel_stays_light():
    lines = (
        "import sys, lowlevel; print([m for m in sys.modules if m.split('.')[0] in ('numpy', 'cuda')], 'run' in dir())"
    )
    done = subprocess.run([sys.executable, "-c", lines], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[] False\n"
    assert lowlevel.run is runner.run
    with pytest.raises(AttributeError, match="no attribute 'walk'"):
        _ = lowlevel.walk


class TestHostArrays:
    def test_numpy_in_and_out(self, device):
        a, b = aligned((7, 5)), aligned((5, 9))
        assert np.array_equal(lowlevel.run("gemm/02_tiled", a, b), a @ b)
        assert np.array_equal(lowlevel.run("transpose/01_naive", a), a.T)
        assert len(device.freed) == len(device.buffers) == 5
        assert [launch[:2] for launch in device.launches] == [("gemm", 1), ("transpose", 1)]

    def test_any_strides_are_packed_on_the_way(self, device):
        a, b = aligned((5, 7)).T, aligned((5, 18))[:, ::2]
        assert np.array_equal(lowlevel.run("gemm/02_tiled", a, b), a @ b)

    def test_out_is_filled_and_returned(self, device):
        a, b = aligned((7, 5)), aligned((5, 9))
        out = np.zeros((9, 7), np.float32).T
        assert lowlevel.run("ptx:gemm/02", a, b, out=out, stream=5) is out
        assert np.array_equal(out, a @ b)
        assert device.launches[0][1] == 5
        out.flags.writeable = False
        assert "can be written" in refused("gemm/02", a, b, out=out)
        assert "can be written" in refused("gemm/02", a, b, out=Packed(aligned((7, 9)), dlpack.CPU))

    def test_a_dlpack_array_on_the_host_is_copied(self, device):
        a = aligned((6, 4))
        packed = Packed(a, dlpack.CPU)
        assert np.array_equal(lowlevel.run("transpose/01_naive", packed), a.T)
        assert packed.asked == [None]

    def test_memory_is_freed_when_a_launch_fails(self, device, monkeypatch):
        monkeypatch.setattr(sys.modules[__name__], "compute", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            lowlevel.run("transpose/01_naive", aligned((6, 4)))
        assert len(device.freed) == len(device.buffers) == 2


class TestDeviceArrays:
    def test_zero_copy_by_either_protocol(self, device):
        a, b = aligned((7, 5)), aligned((5, 9))
        packed = Packed(b)
        result = lowlevel.run("gemm/02_tiled", Interface(a), packed, stream=48)
        assert isinstance(result, DeviceArray)
        assert (result.shape, result.dtype, result.nbytes, result.stream) == ((7, 9), np.float32, 7 * 9 * 4, 48)
        assert np.array_equal(result.numpy(), a @ b)
        assert len(device.buffers) == 1  # the result: nothing was copied
        assert device.launches[0][:2] == ("gemm", 48)
        assert packed.asked == [48]
        assert "borrowed" not in device.freed

    def test_leading_dimensions_are_read_from_strides(self, device):
        a, b, c = aligned((7, 5), leading=8), aligned((5, 9), leading=12), aligned((7, 9), leading=16)
        out = Interface(c)
        assert lowlevel.run("gemm/02_tiled", Interface(a), Interface(b), out=out) is out
        assert np.array_equal(c, a @ b)
        whole = np.ndarray((6, 16), np.float32, (ctypes.c_float * 96).from_address(c.ctypes.data))
        assert (whole[:, 9:] == 77).all()
        assert device.buffers == []
        row = aligned((1, 5), leading=64)
        assert np.array_equal(lowlevel.run("gemm/02_tiled", Interface(row), Interface(b)).numpy(), row @ b)

    def test_the_stride_of_a_single_row_or_column_means_nothing(self, device):
        row, column = aligned((1, 5)), aligned((5, 1))
        shown = Interface(row, strides=(0, 4)), Interface(column, strides=(4, 4000))
        assert np.array_equal(lowlevel.run("gemm/02_tiled", *shown).numpy(), row @ column)

    def test_a_result_is_an_input(self, device):
        a = aligned((7, 5))
        once = lowlevel.run("transpose/01_naive", Interface(a), stream=16)
        twice = lowlevel.run("transpose/01_naive", once, stream=32)
        assert np.array_equal(twice.numpy(), a)
        assert device.waits == [(32, 16)]
        address = once.address
        del once
        gc.collect()
        assert device.freed == [address]

    def test_the_producers_stream_is_waited_for(self, device):
        a, b = aligned((7, 5)), aligned((5, 9))
        lowlevel.run("gemm/02", Interface(a, stream=16), Interface(b, stream=2), stream=16)
        assert device.waits == [(16, 2)]
        device.waits.clear()
        lowlevel.run("gemm/02", Interface(a), Interface(b, stream=1))
        assert device.waits == []

    def test_launches_stay_bound(self, device, monkeypatch):
        a, b, out = aligned((8, 8)), aligned((8, 8)), Interface(aligned((8, 8)))
        call = lambda **words: lowlevel.run("gemm/02", Interface(a), Interface(b), out=out, **words)  # noqa: E731
        for _ in range(3):
            call()
        assert (device.bound, len(device.launches)) == (1, 3)
        call(stream=9)
        assert device.bound == 2
        monkeypatch.setattr(session, "BOUND", 1)
        call(stream=9)
        call()
        assert device.bound == 3

    def test_a_forgotten_launch_frees_its_workspace(self, device, monkeypatch):
        monkeypatch.setattr(session, "BOUND", 0)
        kernel = Kernel(
            "cuda", "transpose/99_scratch", "transpose", "", ("sm_80",), (FP32,), ("A", "C", "workspace"),
            Launch(block=32, grid=(1, 1, 1), workspace=512),
        )  # fmt: skip
        monkeypatch.setattr(runner, "_candidates", lambda name: tuple(kernel.variants()))
        monkeypatch.setattr(session.catalog, "request", lambda variant, arch: None)
        monkeypatch.setattr(SharedBuffer, "fill", lambda self, byte, stream=None: None)
        monkeypatch.setattr(sys.modules[__name__], "compute", lambda *_: None)
        result = lowlevel.run("transpose/99_scratch", Interface(aligned((8, 8))))
        workspace = next(b for b in device.buffers if b.nbytes == 512)
        assert device.freed == [workspace.address] != [result.address]


class TestEpilogues:
    """On host and device arrays: what a kernel with an `epilogue` parameter is told."""

    A, B = (np.random.default_rng(3).standard_normal(shape, np.float32) for shape in ((7, 5), (5, 9)))
    BIAS, RESIDUAL = (np.random.default_rng(4).standard_normal(shape, np.float32) for shape in (9, (7, 9)))

    @staticmethod
    def held(array):
        made = aligned(np.atleast_2d(array).shape)
        made[...] = array
        return made.reshape(array.shape)

    def test_a_kernel_with_epilogues_needs_none(self, device):
        np.testing.assert_allclose(lowlevel.run("gemm/08", self.A, self.B), self.A @ self.B, rtol=1e-5)

    @pytest.mark.parametrize("device_arrays", [False, True], ids=["host", "device"])
    @pytest.mark.parametrize(
        ("words", "name"),
        [
            ({"bias": BIAS}, "bias"),
            ({"bias": BIAS[None, :]}, "bias"),
            ({"residual": RESIDUAL}, "residual"),
            ({"bias": BIAS, "epilogue": "bias_relu"}, "bias_relu"),
            ({"residual": RESIDUAL, "epilogue": "residual"}, "residual"),
        ],
    )
    def test_what_is_added_arrives(self, device, monkeypatch, words, name, device_arrays):
        seen = []
        monkeypatch.setattr(session.catalog, "request", lambda variant, arch: seen.append(variant))
        wrap = (lambda array: Interface(self.held(array))) if device_arrays else (lambda array: array)
        given = {word: wrap(v) if isinstance(v, np.ndarray) else v for word, v in words.items()}
        result = lowlevel.run("gemm/08", wrap(self.A), wrap(self.B), **given)
        result = result.numpy() if device_arrays else result
        added = self.RESIDUAL if name == "residual" else self.BIAS
        np.testing.assert_allclose(result, self.A @ self.B + added, rtol=1e-5, atol=1e-6)
        assert [variant.epilogue for variant in seen] == [name]

    def test_a_name_says_its_epilogue(self, device):
        result = lowlevel.run("gemm/08*[bias_relu]", self.A, self.B, bias=self.BIAS)
        np.testing.assert_allclose(result, self.A @ self.B + self.BIAS, rtol=1e-5, atol=1e-6)

    def test_refusals(self, device):
        a, b, bias, residual = self.A, self.B, self.BIAS, self.RESIDUAL
        assert "no epilogue 'bias'; it has: none" in refused("gemm/02", a, b, bias=bias)
        assert "no epilogue 'gelu'; it has: none, bias, bias_relu" in refused("gemm/08", a, b, epilogue="gelu")
        assert "epilogue 'residual' takes residual=, given: bias=" in refused(
            "gemm/08", a, b, epilogue="residual", bias=bias
        )
        assert "epilogue 'none' adds nothing, given: bias=" in refused("gemm/08", a, b, epilogue="none", bias=bias)
        assert "given: bias=, residual=" in refused("gemm/08", a, b, bias=bias, residual=residual)
        assert "takes A, B, bias: 3 arrays, 2 given" in refused("gemm/08", a, b, epilogue="bias")
        assert "bias is 1 x 8, this call needs 1 x 9" in refused("gemm/08", a, b, bias=bias[:8])
        assert "residual is 9 x 7, this call needs 7 x 9" in refused("gemm/08", a, b, residual=residual.T)
        assert "bias is float64, cuda:gemm/08_warp_tile takes float32" in refused(
            "gemm/08", a, b, bias=bias.astype(float)
        )
        assert "some arrays are in host memory" in refused("gemm/08", a, b, bias=Interface(bias))
        assert "needs arrays" in refused("gemm/08", bias=bias)
        spread = Interface(aligned((7, 9), leading=12))
        assert "residual has rows 12 elements apart" in refused(
            "gemm/08", Interface(self.held(a)), Interface(self.held(b)), residual=spread
        )


class TestRefusals:
    def test_shapes(self, device):
        a, b = aligned((7, 5)), aligned((6, 9))
        assert "in layout NN K is 5 in A and 6 in B" in refused("gemm/02", a, b)
        assert "takes 2 arrays, 1 given" in refused("gemm/02", a)
        assert "takes A, B: 2 arrays, 3 given" in refused("gemm/02", a, aligned((5, 9)), a)
        assert "out is 9 x 7, this call needs 7 x 9" in refused("gemm/02", a, aligned((5, 9)), out=aligned((9, 7)))
        assert "array 1 has 1 dimensions" in refused("transpose/01", a[0])
        assert "array 1 is 0 x 5" in refused("transpose/01", a[:0])
        assert "needs arrays" in refused("gemm/02")
        assert "probe/large_shared is none of them" in refused("probe/large_shared", a.astype(np.int32))

    def test_types(self, device):
        a = aligned((4, 4))
        assert "gemm/02 takes float32, not float64" in refused("gemm/02", a.astype(float), a)
        assert "array 2 is float64, cuda:gemm/02_tiled takes float32 for B" in refused("gemm/02", a, a.astype(float))
        assert "out is float16" in refused("gemm/02", a, a, out=a.astype(np.float16))
        assert "array 1 is a list: give a numpy array" in refused("transpose/01", [[1.0]])

    def test_names_and_layouts(self, device):
        a = aligned((4, 4))
        assert "names several kernels" in refused("gemm", a, a)
        assert "no variant 'gemm/77'" in refused("gemm/77", a, a)
        assert "has no layout NT for float32; it has NN" in refused("gemm/02", a, a, layout="NT")
        assert "has no layouts, but layout='NN'" in refused("transpose/01", a, layout="NN")

    def test_memory(self, device):
        a = aligned((8, 8))
        assert "row-major" in refused("transpose/01", Interface(a.T[:, :7]))
        assert "row-major" in refused("transpose/01", Interface(a[:, ::2]))
        broadcast = Interface(a, strides=(0, 4))
        assert "strides of (0, 4) bytes" in refused("transpose/01", broadcast)
        assert "multiples of 16 bytes" in refused("transpose/01", Interface(a[:, 1:]))
        assert "out is read-only" in refused(
            "transpose/01", Interface(a), out=Interface(aligned((8, 8)), readonly=True)
        )
        assert "out overlaps A" in refused("transpose/01", Interface(a[:4]), out=Interface(a[:, :4]))
        assert "has a mask" in refused("transpose/01", Interface(a, mask=Interface(a)))
        assert "names stream 0" in refused("transpose/01", Interface(a, stream=0))
        assert "takes A as one piece" in refused("copy/01", Interface(aligned((8, 8), leading=12)))

    def test_places(self, device):
        a = aligned((4, 4))
        assert "some arrays are in host memory" in refused("gemm/02", a, Interface(a))
        assert "some arrays are in host memory" in refused("gemm/02", Interface(a), Interface(a), out=a)
        assert "name several GPUs: 0, 1" in refused("gemm/02", Interface(a), Packed(a, number=1))
        assert "name several GPUs: 0, 3" in refused("transpose/01", Interface(a), device=3)
        assert "DLPack's type 10" in refused("transpose/01", Packed(a, 10))

    def test_the_producers_own_refusal(self, device):
        class Grad(Packed):
            def __dlpack__(self, **_):
                raise BufferError("tensors that require gradient\nmore")

        class NoInterface:
            @property
            def __cuda_array_interface__(self):
                raise RuntimeError("sparse")

        assert refused("transpose/01", Grad(aligned((4, 4)))) == (
            "array 1 cannot be shared: tensors that require gradient"
        )
        assert refused("transpose/01", NoInterface()) == "array 1 cannot be shared: sparse"

    def test_the_kernels_rule(self, device, monkeypatch):
        rule = Rule(lambda p: p.dimensions["lda"] % 8 == 0, "lda must be a multiple of 8")
        kernel = runner.one_kernel("cuda:gemm/02")[0].kernel
        object.__setattr__(kernel, "needs", (rule,))
        try:
            assert "lda must be a multiple of 8" in refused("cuda:gemm/02", aligned((4, 4)), aligned((4, 4)))
        finally:
            object.__setattr__(kernel, "needs", ())


class TestChoosing:
    def candidates(self, monkeypatch, *types, layouts=("NN",), languages=("cuda",)):
        found = []
        for language in languages:
            kernel = Kernel(
                language, "gemm/50_x", "gemm", "", ("sm_80",), types, (), Launch(32, (1, 1, 1)), layouts=layouts
            )
            found += kernel.variants()
        monkeypatch.setattr(runner, "_candidates", lambda name: tuple(found))

    def test_the_type_chooses(self, monkeypatch):
        self.candidates(monkeypatch, FP16, BF16, FP32)
        for dtype, name in ((np.float32, "fp32"), (np.float16, "fp16"), (ml_dtypes.bfloat16, "bf16")):
            assert runner.choose("gemm/50", np.dtype(dtype), None).type.name == name

    def test_the_layout_is_never_guessed(self, monkeypatch):
        self.candidates(monkeypatch, FP32, layouts=("NT", "TN"))
        with pytest.raises(UsageError, match="has no layout NN for float32; it has NT, TN: give layout="):
            runner.choose("gemm/50", np.dtype("f4"), None)
        assert runner.choose("gemm/50", np.dtype("f4"), "TN").layout == "TN"
        assert runner.choose("gemm/50[TN]", np.dtype("f4"), None).layout == "TN"

    def test_shapes_follow_the_layout(self, monkeypatch):
        self.candidates(monkeypatch, FP32, layouts=("NN", "NT", "TN", "TT"))
        for layout, a, b in (
            ("NN", (3, 5), (5, 7)), ("NT", (3, 5), (7, 5)), ("TN", (5, 3), (5, 7)), ("TT", (5, 3), (7, 5)),
        ):  # fmt: skip
            variant = runner.choose("gemm/50", np.dtype("f4"), layout)
            monkeypatch.setattr(shapes, "_has_leading", lambda *_: None)
            problem = shapes.problem_for(variant, [shapes.Matrix(a, 8), shapes.Matrix(b, 9)], shapes.Matrix((3, 7), 10))
            assert {**problem.dimensions} == {"m": 3, "n": 7, "k": 5, "lda": 8, "ldb": 9, "ldc": 10}


def test_stream_handles():
    for given, handle in (
        (None, 1),
        (0, 1),
        (2, 2),
        (np.int64(77), 77),
        (SimpleNamespace(__cuda_stream__=lambda: (0, 91)), 91),
        (SimpleNamespace(__cuda_stream__=(0, 92)), 92),
        (SimpleNamespace(cuda_stream=93), 93),
        (SimpleNamespace(cuda_stream=0), 1),
        (SimpleNamespace(ptr=94), 94),
        (SimpleNamespace(handle=95), 95),
        (SimpleNamespace(handle=ctypes.c_void_p(96)), 96),
    ):
        assert streams.handle_of(given) == handle, given
    for wrong in ("stream", True, -1, 1.5, object()):
        with pytest.raises(UsageError, match="give an int, or an object with __cuda_stream__"):
            streams.handle_of(wrong)


class TestDlpack:
    @pytest.mark.parametrize("version", [{}, {"max_version": (1, 0)}], ids=["plain", "versioned"])
    @pytest.mark.parametrize("dtype", ["f4", "f2", "f8", "i4", "i1", "u2", "i8"])
    def test_numpys_own_capsules(self, dtype, version):
        array = np.arange(60).astype(dtype).reshape(6, 10)[1:5, 2:9]
        tensor = dlpack.read(array.__dlpack__(**version))
        assert (tensor.address, tensor.shape, tensor.strides) == (array.ctypes.data, array.shape, array.strides)
        assert (tensor.dtype, tensor.kind, tensor.number, tensor.readonly) == (array.dtype, dlpack.CPU, 0, False)
        copy = dlpack.host_copy(tensor)
        assert np.array_equal(copy, array)
        assert not np.shares_memory(copy, array)

    def test_a_read_only_array_says_so(self):
        array = np.zeros((2, 2), np.float32)
        array.flags.writeable = False
        assert dlpack.read(array.__dlpack__(max_version=(1, 0))).readonly

    def test_the_memory_lives_as_long_as_the_tensor(self):
        before = sys.getrefcount(array := np.zeros((2, 2), np.float32))
        tensor = dlpack.read(array.__dlpack__())
        assert sys.getrefcount(array) > before
        del tensor
        assert sys.getrefcount(array) == before

    def test_what_is_no_capsule(self):
        used = np.zeros(2).__dlpack__()
        np.from_dlpack(SimpleNamespace(__dlpack__=lambda **_: used, __dlpack_device__=lambda: (1, 0)))
        for wrong in (used, None, 7):
            with pytest.raises(UsageError, match="no fresh DLPack capsule"):
                dlpack.read(wrong)
        with pytest.raises(UsageError, match="type code 5 of 64 bits"):
            dlpack.read(np.zeros(2, np.complex64).__dlpack__())
        with pytest.raises(UsageError, match="negative"):
            dlpack.host_copy(dlpack.read(np.zeros(4)[::-1].__dlpack__()))

    def test_numpy_takes_our_capsules_and_lets_go(self):
        """A consumer that is not ours: it reads shape and elements, and calls the deleter."""
        for keep in (True, False):
            array = aligned((3, 5))
            packed = Packed(array, dlpack.CPU)
            before = sys.getrefcount(packed)
            capsule = packed.__dlpack__()
            assert sys.getrefcount(packed) > before
            if keep:
                shown = SimpleNamespace(__dlpack__=lambda c=capsule, **_: c, __dlpack_device__=lambda: (1, 0))
                taken = np.from_dlpack(shown)
                assert np.array_equal(taken, array)
                assert np.shares_memory(taken, array)
                del taken, shown
            del capsule
            gc.collect()
            assert sys.getrefcount(packed) == before
            assert dlpack._handed_out == {}

    @pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, np.int32])
    def test_types_survive_the_way_there_and_back(self, dtype):
        array = aligned((3, 5), dtype)
        tensor = dlpack.read(Packed(array).__dlpack__())
        assert (tensor.dtype, tensor.kind) == (array.dtype, dlpack.CUDA)
        assert tensor.strides == (5 * array.itemsize, array.itemsize)


class TestResult:
    def result(self, device, dtype=np.float32) -> DeviceArray:
        return DeviceArray(device, device.allocate(60), (3, 5), np.dtype(dtype), 48)

    def test_the_interface(self, device):
        result = self.result(device)
        assert result.__cuda_array_interface__ == {
            "shape": (3, 5), "typestr": "<f4", "data": (result.address, False), "strides": None, "version": 3,
            "stream": 48,
        }  # fmt: skip
        assert not hasattr(self.result(device, ml_dtypes.bfloat16), "__cuda_array_interface__")
        assert repr(result) == "DeviceArray(shape=(3, 5), dtype=float32, gpu=0)"

    def test_a_consumers_stream_waits(self, device):
        result = self.result(device)
        for stream, waits in ((48, []), (-1, []), (16, [(16, 48)]), (None, [(1, 48)])):
            device.waits.clear()
            tensor = dlpack.read(result.__dlpack__(stream=stream, max_version=(1, 0)))
            assert device.waits == waits
            assert (tensor.address, tensor.shape, tensor.kind) == (result.address, (3, 5), dlpack.CUDA)
        for words in ({"stream": 0}, {"copy": True}, {"dl_device": (1, 0)}):
            with pytest.raises(BufferError):
                result.__dlpack__(**words)

    def test_a_capsule_keeps_the_memory(self, device):
        result = self.result(device)
        capsule = result.__dlpack__(stream=-1)
        del result
        gc.collect()
        assert device.freed == []
        del capsule
        gc.collect()
        assert len(device.freed) == 1

    def test_recognised_without_its_own_protocols(self, device):
        result = self.result(device, ml_dtypes.bfloat16)
        view = arrays.recognise(result, "x", 16)
        assert (view.address, view.strides, view.stream, view.ordinal) == (result.address, (10, 2), 48, 0)


#: A transpose through the real bindings: the stub transposes, so results can be compared.
STUB_LINES = """
import ctypes
import json
import numpy as np
import lowlevel
from lowlevel.interop import session
from lowlevel.toolchain.binary import Binary, Entry, Parameter, Resources

def build(request):
    kinds = ("u64", "u64", "s32", "s32", "s32", "s32")
    parameters = tuple(Parameter(k, int(k[1:]) // 8, int(k[1:]) // 8) for k in kinds)
    image = b"transpose 32 0 1024 8 8 4 4 4 4"
    return Binary("cuda", request.arch, image, "", {"transpose": Entry("transpose", Resources(32), parameters)})

session.build_here = build

class Lent:
    def __init__(self, array, stream):
        self.array = array
        self.__cuda_array_interface__ = {
            "shape": array.shape, "typestr": array.dtype.str, "data": (array.ctypes.data, False), "version": 3,
            "stream": stream, "strides": array.strides,
        }

def memory(rows, columns):
    room = np.zeros(rows * columns + 64, np.float32)
    start = (-room.ctypes.data % 256) // 4
    return room[start : start + rows * columns].reshape(rows, columns)
"""


def test_through_the_bindings(tmp_path):
    pytest.importorskip("cuda.bindings.driver", reason="cuda-bindings is not installed")
    compiler = shutil.which("cc")
    if not compiler:
        pytest.skip("no C compiler (cc) to build the stub driver with")
    source = Path(__file__).parent / "stub" / "libcuda.c"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", tmp_path / "libcuda.so.1", source], check=True)
    lines = """
a = np.arange(35, dtype=np.float32).reshape(5, 7)
right = bool((lowlevel.run("transpose/01", a) == a.T).all())
lent, out = memory(6, 8), memory(7, 12)
lent[:] = np.arange(48).reshape(6, 8)
lowlevel.run("transpose/01", Lent(lent[:, :7], 0x70), out=Lent(out[:, :6], None), stream=0x60)
right = [right, bool((out[:, :6] == lent[:, :7].T).all()), bool((out[:, 6:] == 0).all())]
result = lowlevel.run("transpose/01", Lent(lent, None), stream=0x60)
right.append(bool((result.numpy() == lent.T).all()))
result.__dlpack__(stream=1)
print(json.dumps([right, lent.ctypes.data, out.ctypes.data, result.address]))
"""
    log = tmp_path / "calls.jsonl"
    environment = {k: v for k, v in os.environ.items() if not k.startswith("CUDA_")}
    environment |= {"LD_LIBRARY_PATH": str(tmp_path), "STUB_GPU": "H100", "STUB_RUN": "1", "STUB_LOG": str(log)}
    command = [sys.executable, "-c", STUB_LINES + lines]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    right, lent, out, result = json.loads(done.stdout)
    calls = [json.loads(line) for line in log.read_text().splitlines()]
    assert right == [True] * 4
    _, second, third = [c for c in calls if c["call"] == "launch"]
    little = lambda n, size: n.to_bytes(size, "little").hex()  # noqa: E731
    sizes = lambda *numbers: [little(n, 4) for n in numbers]  # noqa: E731
    assert second["parameters"] == [little(lent, 8), little(out, 8), *sizes(6, 7, 8, 12)]
    assert third["parameters"] == [little(lent, 8), little(result, 8), *sizes(6, 8, 8, 6)]
    assert [second["stream"], third["stream"]] == [0x60, 0x60]
    # The producer's stream 0x70 before the second launch; the consumer's stream 1 after the third.
    events = [(c["call"], c["stream"]) for c in calls if c["call"] in ("event", "wait", "launch")][1:]
    assert events == [
        ("event", 0x70), ("wait", 0x60), ("launch", 0x60), ("launch", 0x60), ("event", 0x60), ("wait", 1),
    ]  # fmt: skip
    pushes, pops = ([c["call"] for c in calls].count(name) for name in ("push", "pop"))
    assert pushes == pops > 0
