"""The CUDA device: memory, streams, events, graphs, launches that are cheap."""

import ml_dtypes
import numpy as np
import pytest

from lowlevel.compare import same_on_device
from lowlevel.device.cuda.bench_launch import measure
from lowlevel.device.protocol import LaunchShape
from lowlevel.errors import DeviceError
from lowlevel.hardware import bandwidth, occupancy
from lowlevel.toolchain.binary import Request
from lowlevel.toolchain.build import build

SOURCE = """
extern "C" __global__ void add(int* data, int n, int value) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) data[i] += value;
}
"""


@pytest.fixture(scope="module")
def add(device, tmp_path_factory):
    path = tmp_path_factory.mktemp("device") / "add.cu"
    path.write_text(SOURCE)
    return device.load(build(Request("cuda", path, device.limits.arch, ("add",)))).function("add")


@pytest.mark.parametrize("dtype", [np.float32, np.int8, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn])
def test_arrays_come_back_as_they_went(device, dtype):
    array = np.arange(100_003).astype(dtype)
    buffer = device.allocate(array.nbytes)
    buffer.upload(array)
    again = buffer.download(dtype, array.shape)
    assert np.array_equal(array.view(np.uint8), again.view(np.uint8))
    assert buffer.guards_intact() is None
    buffer.free()


@pytest.mark.parametrize("nbytes", [1, 15, 16, 33, (80 << 20) + 7])
def test_two_buffers_are_the_same_until_one_byte_differs(device, nbytes):
    array = np.random.default_rng(0).integers(0, 255, nbytes, dtype=np.uint8)
    a, b, differ = (device.allocate(n) for n in (nbytes, nbytes, 16))
    a.upload(array)
    for at in (None, 0, nbytes // 2, nbytes - 1):
        other = array.copy()
        if at is not None:
            other[at] ^= 1
        b.upload(other)
        device.synchronize()
        assert same_on_device(device, device.stream(), a, b, differ) == (at is None)
    for buffer in (a, b, differ):
        buffer.free()


def test_large_arrays_pass_through_the_pinned_chunks(device):
    array = np.random.default_rng(0).integers(0, 255, 80 << 20, dtype=np.uint8)
    buffer = device.allocate(array.nbytes)
    buffer.upload(array)
    assert np.array_equal(buffer.download(np.uint8, array.shape), array)
    other = device.allocate(array.nbytes)
    other.copy_from(buffer)
    assert np.array_equal(other.download(np.uint8, (4096,), 40 << 20), array[40 << 20 :][:4096])
    buffer.free()
    other.free()


def test_more_memory_than_there_is(device):
    with pytest.raises(DeviceError, match=r"CUDA_ERROR_OUT_OF_MEMORY: \d+\.\d\d GiB asked, .* free of"):
        device.allocate(1 << 50)


def test_a_packet_is_launched_again_and_a_graph_replays_it(device, add):
    buffer = device.allocate(4000)
    buffer.fill(0)
    stream, other = device.stream(), device.stream()
    packet = device.bind(add, LaunchShape((4, 1, 1), (256, 1, 1)), [buffer, np.int32(1000), np.int32(3)])
    device.synchronize()
    packet.launch(stream)
    stream.synchronize()
    packet.launch(other)
    other.synchronize()
    graph = device.capture(stream, lambda s: [packet.launch(s) for _ in range(5)])
    assert graph.nodes == 5
    assert (buffer.download(np.int32, (1000,)) == 6).all()  # capturing ran nothing
    graph.launch(stream)
    stream.synchronize()
    assert (buffer.download(np.int32, (1000,)) == 21).all()
    graph.close()
    buffer.free()


def test_events_measure(device, add):
    buffer, stream = device.allocate(4000), device.stream()
    packet = device.bind(add, LaunchShape((4, 1, 1), (256, 1, 1)), [buffer, np.int32(1000), np.int32(0)])
    start, end = device.event(), device.event()
    start.record(stream)
    for _ in range(100):
        packet.launch(stream)
    end.record(stream)
    end.synchronize()
    assert 0 < end.milliseconds_since(start) < 1000
    buffer.free()


def test_limits_are_those_of_the_table(device, add):
    limits = device.limits
    assert bandwidth(limits) > 1e11
    assert device.blocks_per_sm(add, 256, 0) == occupancy(limits, 256, add.registers, 0).blocks_per_sm
    assert device.blocks_per_sm(add, 128, 40960) == occupancy(limits, 128, add.registers, 40960).blocks_per_sm


def test_launching_costs_little_more_than_the_bindings(device):
    """Reported, not asserted: tests do not judge time. The two ways launch the same thing as often."""
    result = measure(device, rounds=5, launches=50)
    assert result["packet_us"] > 0
    assert result["bare_us"] > 0
