"""The ten commonest ways to fail at a launch, provoked: each is one line with the value, the limit and what to do."""

import numpy as np
import pytest

from lowlevel.device.protocol import LaunchShape
from lowlevel.errors import DeviceError, UsageError
from lowlevel.toolchain.binary import Binary, Request
from lowlevel.toolchain.build import build
from lowlevel.worker import Worker

SOURCE = """
extern "C" __global__ void __launch_bounds__(256) fill(int* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = i;
}
extern "C" __global__ void hungry(float* out, int n) {
    float v[120];
#pragma unroll
    for (int i = 0; i < 120; ++i) v[i] = out[i * n];
#pragma unroll 1
    for (int k = 0; k < n; ++k)
#pragma unroll
        for (int i = 0; i < 120; ++i) v[i] = v[i] * v[(i + 7) % 120] + out[k];
#pragma unroll
    for (int i = 0; i < 120; ++i) out[i * n] = v[i];
}
extern "C" __global__ void staged(int* out, int n) {
    __shared__ int words[4096];
    words[threadIdx.x] = n;
    __syncthreads();
    out[threadIdx.x] = words[threadIdx.x ^ 1];
}
extern "C" __global__ void stray(int* out, long long far) { out[far] = 1; }
"""


def compiled(folder, arch):
    path = folder / "launch.cu"
    path.write_text(SOURCE)
    return build(Request("cuda", path, arch, ("fill", "hungry", "staged", "stray")))


@pytest.fixture(scope="module")
def module(device, tmp_path_factory):
    return device.load(compiled(tmp_path_factory.mktemp("launch"), device.limits.arch))


@pytest.fixture
def out(device):
    buffer = device.allocate(4096)
    yield buffer
    buffer.free()


def shape(grid=(1, 1, 1), block=(64, 1, 1), **rest):
    return LaunchShape(grid, block, **rest)


def test_too_many_threads_for_the_bounds(device, module, out):
    with pytest.raises(UsageError, match=r"fill: 512 threads a block, its __launch_bounds__ allow 256"):
        device.bind(module.function("fill"), shape(block=(512, 1, 1)), [out, np.int32(4)])


def test_more_threads_than_a_block_may_have(device, module, out):
    with pytest.raises(UsageError, match=r"staged: 2048 threads a block, the limit is 1024"):
        device.bind(module.function("staged"), shape(block=(512, 4, 1)), [out, np.int32(4)])


def test_more_registers_than_a_block_has(device, module, out):
    function = module.function("hungry")
    assert function.registers > 64
    with pytest.raises(UsageError, match=r"registers needed \(\d+ x 1024 threads\), 65,536 available per block"):
        device.bind(function, shape(block=(1024, 1, 1)), [out, np.int32(4)])


def test_more_shared_memory_than_a_block_has(device, module, out):
    limit = device.limits.shared_per_block_optin
    with pytest.raises(UsageError, match=rf"16384 bytes of static and {limit} of dynamic shared .* at most {limit}"):
        device.bind(module.function("staged"), shape(shared=limit), [out, np.int32(4)])


def test_no_blocks_and_too_many(device, module, out):
    with pytest.raises(UsageError, match=r"fill: grid x is 0, the limit is 1 to 2147483647"):
        device.bind(module.function("fill"), shape(grid=(0, 1, 1)), [out, np.int32(4)])
    with pytest.raises(UsageError, match=r"fill: grid y is 70000, the limit is 1 to 65535"):
        device.bind(module.function("fill"), shape(grid=(1, 70000, 1)), [out, np.int32(4)])


def test_arguments_that_do_not_fit(device, module, out):
    fill = module.function("fill")
    with pytest.raises(UsageError, match=r"fill takes 2 arguments, 1 given"):
        device.bind(fill, shape(), [out])
    with pytest.raises(UsageError, match=r"fill, argument 1: a int64 has 8 bytes, the parameter \(.u32\) has 4"):
        device.bind(fill, shape(), [out, np.int64(4)])
    with pytest.raises(UsageError, match=r"fill, argument 1: a float32 for a parameter of type .u32"):
        device.bind(fill, shape(), [out, np.float32(4)])


def test_a_cooperative_grid_that_does_not_fit(device, module, out):
    blocks = 100 * device.limits.sms
    with pytest.raises(UsageError, match=rf"grid {blocks} > {device.limits.sms} SMs x \d+ block\(s\)"):
        device.bind(module.function("fill"), shape((blocks, 1, 1), cooperative=True), [out, np.int32(4)])


@pytest.mark.capability("clusters")
def test_clusters_that_cannot_be(device, module, out):
    fill = module.function("fill")
    with pytest.raises(UsageError, match=r"grid x is 3, not a multiple of the cluster's 2"):
        device.bind(fill, shape((3, 1, 1), cluster=(2, 1, 1)), [out, np.int32(4)])
    with pytest.raises(UsageError, match=r"a cluster of 32 blocks, the limit is 8"):
        device.bind(fill, shape((32, 1, 1), cluster=(32, 1, 1)), [out, np.int32(4)])


def test_a_kernel_that_is_not_there(module):
    with pytest.raises(UsageError, match=r"no kernel 'fil' in launch.cu; the module has: fill, hungry, staged, stray"):
        module.function("fil")


def test_code_for_another_architecture(device, tmp_path):
    other = "sm_100a" if device.limits.capability != (10, 0) else "sm_90a"
    with pytest.raises(UsageError, match=rf"code for {other} cannot run on .*: build it for {device.limits.arch}"):
        device.load(compiled(tmp_path, other))


def test_a_corrupt_binary(device):
    broken = Binary("cuda", device.limits.arch, b"\x7fELF" + bytes(64), "", {}, source="broken.cu")
    with pytest.raises(DeviceError, match=r"CUDA_ERROR_INVALID_IMAGE while loading the cubin of broken.cu: .*corrupt"):
        device.load(broken)


def test_ptx_that_is_newer_than_the_driver(device):
    ptx = ".version 99.0\n.target sm_75\n.address_size 64\n.visible .entry k() { ret; }\n"
    with pytest.raises(UsageError, match=r"PTX ISA 99.0 is newer than this driver's \d+\.\d+ .*: build a cubin"):
        device.load(Binary("ptx", "sm_75", b"", ptx, {}, source="new.ptx"))


def test_ptx_that_does_not_assemble_shows_its_line(device):
    ptx = ".version 6.3\n.target sm_75\n.address_size 64\n.visible .entry k() {\n  frobnicate.u32;\n  ret;\n}\n"
    with pytest.raises(DeviceError, match=r"CUDA_ERROR_INVALID_PTX .*bad.ptx:5: .*frobnicate.u32;"):
        device.load(Binary("ptx", "sm_75", b"", ptx, {}, source="bad.ptx"))


def stray_write(folder):
    """In a child process: the context does not survive it."""
    from pathlib import Path

    from lowlevel.device.cuda.device import open_device

    device = open_device()
    buffer = device.allocate(4096)
    function = device.load(compiled(Path(folder), device.limits.arch)).function("stray")
    stream = device.stream()
    device.bind(function, shape(block=(1, 1, 1)), [buffer, np.int64(1 << 42)]).launch(stream)
    stream.synchronize()


def test_a_stray_write_names_the_error_and_the_cure(device, tmp_path):
    compiled(tmp_path, device.limits.arch)  # into the cache: a worker's child starts no compiler of its own
    with Worker("stray") as worker, pytest.raises(DeviceError) as caught:
        worker.call(stray_write, str(tmp_path), deadline=60)
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in str(caught.value)
    assert "compute-sanitizer" in str(caught.value)
    assert "context is lost" in str(caught.value)


def test_guards_see_a_write_past_the_end(device, module):
    buffer = device.allocate(64)
    stream = device.stream()
    device.bind(module.function("fill"), shape(), [buffer, np.int32(17)]).launch(stream)
    stream.synchronize()
    assert buffer.guards_intact() == "4 guard bytes after the buffer overwritten, the nearest 0 bytes from it"
    buffer.free()
