"""lowlevel.run on a GPU: numpy's arrays, its own results, and PyTorch's where it is installed."""

from __future__ import annotations

import threading

import ml_dtypes
import numpy as np
import pytest

import lowlevel
from lowlevel.device.cuda.driver import bindings, probe
from lowlevel.device.cuda.errors import check
from lowlevel.errors import UsageError


@pytest.fixture(autouse=True)
def _gpu():
    if reason := probe():
        pytest.skip(reason)


@pytest.fixture
def torch():
    found = pytest.importorskip("torch", reason="torch is not installed")
    if not found.cuda.is_available():
        pytest.skip("torch sees no GPU")
    return found


def integers(shape, seed=0, dtype=np.float32):
    """Small integers: every product and sum is exact, so results are compared bit by bit."""
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(dtype)


class Shown:
    """A result of ours as a stranger's array: only one of its two protocols."""

    def __init__(self, array, protocol):
        self.array = array
        if protocol == "interface":
            self.__cuda_array_interface__ = array.__cuda_array_interface__
        else:
            self.__dlpack_device__, self.__dlpack__ = array.__dlpack_device__, array.__dlpack__


@pytest.mark.parametrize("name", ["gemm/01_naive", "gemm/02_tiled", "ptx:gemm/02"])
def test_numpy_gemm(name):
    a, b = integers((257, 65)), integers((65, 129), 1)
    assert np.array_equal(lowlevel.run(name, a, b), a @ b)
    out = np.zeros((257, 129), np.float32)
    assert lowlevel.run(name, a, b, out=out) is out
    assert np.array_equal(out, a @ b)


def test_numpy_gemm_with_an_epilogue():
    a, b, bias, residual = integers((257, 65)), integers((65, 129), 1), integers((1, 129), 2), integers((257, 129), 3)
    for name in ("gemm/05", "gemm/06"):  # the later ones need sm_80
        assert np.array_equal(lowlevel.run(name, a, b), a @ b)
        assert np.array_equal(lowlevel.run(name, a, b, bias=bias[0]), a @ b + bias)
        assert np.array_equal(lowlevel.run(name, a, b, residual=residual), a @ b + residual)
        relu = lowlevel.run(name, a, b, epilogue="bias_relu", bias=bias)
        assert np.array_equal(relu, np.maximum(a @ b + bias, 0))


def test_numpy_transpose_and_copy():
    for dtype in (np.float32, ml_dtypes.bfloat16):
        a = integers((100, 77), dtype=dtype)
        assert np.array_equal(lowlevel.run("transpose/01_naive", a), a.T)
    a = integers((64, 48))
    assert np.array_equal(lowlevel.run("copy/01_vectorised", a), a)


def test_a_chain_stays_on_the_gpu():
    a = integers((300, 200))
    lent = lowlevel.run("transpose/01", on_gpu(a))
    assert np.array_equal(lowlevel.run("transpose/01", lent).numpy(), a)
    product = lowlevel.run("gemm/02", lent, on_gpu(a))
    assert np.array_equal(product.numpy(), a.T @ a)


def on_gpu(array):
    """A DeviceArray with these values."""
    from lowlevel.interop.result import DeviceArray
    from lowlevel.interop.session import session

    device = session(0).device
    with device.current():
        buffer = device.allocate(array.nbytes)
        buffer.upload(array)
    return DeviceArray(device, buffer, array.shape, array.dtype, 1)


@pytest.mark.parametrize("protocol", ["interface", "dlpack"])
def test_strangers_arrays_and_streams(protocol):
    """A long chain on one stream, its result read on another: right only if streams wait for each other."""
    from lowlevel.interop.session import session

    device, a = session(0).device, integers((1024, 1024), 2)
    with device.current():
        one, two = device.stream(), device.stream()
    chain = [on_gpu(a)]  # all are kept: freeing one would wait for the GPU
    for _ in range(51):
        chain.append(lowlevel.run("transpose/01", Shown(chain[-1], protocol), stream=one))
    result = lowlevel.run("gemm/02", Shown(chain[-1], protocol), Shown(chain[0], protocol), stream=two.handle)
    assert result.stream == two.handle
    assert np.array_equal(result.numpy(), a.T @ a)


def test_the_threads_context_is_left_alone():
    driver = bindings()
    before = int(check(driver.cuCtxGetCurrent()))
    a = integers((33, 44))
    assert np.array_equal(lowlevel.run("transpose/01", a), a.T)
    assert int(check(driver.cuCtxGetCurrent())) == before


def test_threads_without_a_context():
    a, b, wrong = integers((128, 128)), integers((128, 128), 1), []

    def work():
        wrong.extend(i for i in range(20) if not np.array_equal(lowlevel.run("gemm/02", a, b), a @ b))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_host_address_is_refused():
    a = integers((16, 16))

    class Wrong:
        __cuda_array_interface__ = {
            "shape": a.shape, "typestr": "<f4", "data": (a.ctypes.data, False), "version": 3,
        }  # fmt: skip

    with pytest.raises(UsageError, match="not an address in a GPU's memory"):
        lowlevel.run("transpose/01", Wrong())


class TestTorch:
    def test_on_a_stream_of_its_own(self, torch):
        a = torch.randint(-3, 4, (513, 300), device="cuda").float()
        b = torch.randint(-3, 4, (300, 257), device="cuda").float()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            more = a * 1  # enqueued on the stream just before
            result = lowlevel.run("gemm/02_tiled", more, b, stream=stream)
            back = torch.from_dlpack(result)
            assert torch.equal(back, a @ b)
        assert back.data_ptr() == result.address

    def test_out_views_and_the_default_stream(self, torch):
        whole = torch.randint(-3, 4, (64, 96), device="cuda").float()
        a = whole[:, :80]  # rows 96 apart
        out = torch.full((80, 128), 7.0, device="cuda")
        assert lowlevel.run("transpose/01", a, out=out[:, :64]).data_ptr() == out.data_ptr()
        assert torch.equal(out[:, :64], a.T)
        assert (out[:, 64:] == 7).all()
        with pytest.raises(UsageError, match="row-major"):
            lowlevel.run("transpose/01", a.T)

    def test_bf16_and_gradients(self, torch):
        a = torch.randn(40, 72, device="cuda", dtype=torch.bfloat16)
        assert torch.equal(torch.from_dlpack(lowlevel.run("transpose/01", a)), a.T)
        with pytest.raises(UsageError, match=r"array 1 cannot be shared: .*grad"):
            lowlevel.run("transpose/01", a.requires_grad_())

    def test_a_result_outlives_its_maker(self, torch):
        a = torch.randn(64, 64, device="cuda")
        back = torch.from_dlpack(lowlevel.run("transpose/01", a))
        lowlevel.run("transpose/01", a)
        assert torch.equal(back, a.T)
