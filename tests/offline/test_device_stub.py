"""The device layer through the real bindings against a stub driver (`stub/libcuda.c`), which says what it was asked.

The bindings load a driver once a process, so every test runs its lines in a process of its own.
"""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from lowlevel.hardware import Limits

pytest.importorskip("cuda.bindings.driver", reason="cuda-bindings is not installed")

ROOT = Path(__file__).parents[2]

#: Opens the device. `load` makes a kernel k(u64, f32, s32, u16) of 32 registers and the static shared memory given.
PRELUDE = """
import numpy as np
from lowlevel.device.cuda.device import open_device
from lowlevel.device.protocol import LaunchShape
from lowlevel.errors import UsageError
from lowlevel.tensormap import TensorMap
from lowlevel.toolchain.binary import Binary, Entry, Parameter, Resources

device = open_device()

def load(static=0, types="u64 f32 s32 u16"):
    sizes = [128 if t == "b8" else int(t[1:]) // 8 for t in types.split()]
    parameters = tuple(Parameter(t, size, min(size, 64)) for t, size in zip(types.split(), sizes))
    image = f"k 32 {static} 1024 {' '.join(map(str, sizes))}".encode()
    binary = Binary("ptx", device.limits.arch, image, "", {"k": Entry("k", Resources(32), parameters)})
    return device.load(binary).function("k")

def refused(function, shape, *arguments):
    try:
        device.bind(function, shape, arguments)
    except UsageError as error:
        return str(error)
    return None
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory) -> Path:
    """The folder that holds the stub as libcuda.so.1."""
    compiler = shutil.which("cc")
    if not compiler:
        pytest.skip("no C compiler (cc) to build the stub driver with")
    folder = tmp_path_factory.mktemp("driver")
    source = Path(__file__).parent / "stub" / "libcuda.c"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", folder / "libcuda.so.1", source], check=True)
    return folder


@pytest.fixture
def python(library, tmp_path):
    """Runs lines with the stub as their driver: what they gave to `print(json.dumps(...))`, and the driver's calls."""

    def run(lines: str, gpu: str = "H100", init: int = 0, folder: Path = library):
        log = tmp_path / "calls.jsonl"
        log.unlink(missing_ok=True)
        environment = {k: v for k, v in os.environ.items() if not k.startswith("CUDA_")}
        path = os.pathsep.join(filter(None, (str(folder), os.environ.get("LD_LIBRARY_PATH"))))
        environment |= {"LD_LIBRARY_PATH": path, "STUB_GPU": gpu, "STUB_INIT": str(init), "STUB_LOG": str(log)}
        command = [sys.executable, "-c", f"import json\n{lines}"]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        calls = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
        return json.loads(done.stdout), calls

    return run


def called(calls: list[dict], name: str) -> list[dict]:
    return [call for call in calls if call["call"] == name]


def expected_limits(name, capability, sms, l2, memory, clock, memory_clock, bus, shared_sm, optin, cluster) -> Limits:
    return Limits(
        name=name,
        capability=capability,
        sms=sms,
        threads_per_block=1024,
        threads_per_sm=2048,
        blocks_per_sm=32,
        registers_per_block=65536,
        registers_per_sm=65536,
        shared_per_block=48 << 10,
        shared_per_block_optin=optin << 10,
        shared_per_sm=shared_sm << 10,
        shared_reserved=1 << 10,
        l2_bytes=l2,
        memory_bytes=memory,
        sm_clock_mhz=clock,
        memory_clock_mhz=memory_clock,
        memory_bus_bits=bus,
        max_cluster=cluster,
        cooperative=True,
    )


H100 = "NVIDIA H100 80GB HBM3"
MIG = f"{H100} MIG 1g.10gb"
LIMITS = {
    "A100": expected_limits("NVIDIA A100-SXM4-80GB", (8, 0), 108, 40 << 20, 85094694912, 1410, 1593, 5120, 164, 163, 1),
    "H100": expected_limits(H100, (9, 0), 132, 50 << 20, 85029158912, 1980, 2619, 5120, 228, 227, 8),
    "H200": expected_limits("NVIDIA H200", (9, 0), 132, 60 << 20, 150110011392, 1980, 3201, 6016, 228, 227, 8),
    "MIG": expected_limits(MIG, (9, 0), 16, 6400 << 10, 10401873920, 1980, 2619, 640, 228, 227, 8),
}


@pytest.mark.parametrize("gpu", LIMITS)
def test_limits(python, gpu):
    lines = "import dataclasses\nprint(json.dumps([dataclasses.asdict(device.limits), sorted(device.capabilities)]))"
    (limits, capabilities), _ = python(PRELUDE + lines, gpu)
    limits["capability"] = tuple(limits["capability"])
    assert Limits(**limits) == LIMITS[gpu]
    hopper = ["clusters", "cooperative", "copy", "graph", "programmatic", "tensor_map", "time"]
    assert capabilities == (hopper if gpu != "A100" else ["cooperative", "copy", "graph", "time"])


def test_launch_configuration(python):
    lines = """
kernel, buffer = load(), device.allocate(64)
shape = LaunchShape((4, 6, 2), (32, 4, 2), 1000)
plain = device.bind(kernel, shape, (buffer, 1.5, -2, np.uint16(65535)))
full = LaunchShape((4, 6, 2), (32, 4, 2), 0, cluster=(2, 3, 1), cooperative=True, programmatic=True)
full = device.bind(kernel, full, (buffer, np.float32(-0.5), np.int32(7), 8))
one, two = device.stream(), device.stream()
for packet, stream in ((plain, one), (plain, two), (plain, one), (full, two)):
    packet.launch(stream)
print(json.dumps([buffer.address, one.handle, two.handle]))
"""
    (address, one, two), calls = python(PRELUDE + lines)
    *plain, full = called(calls, "launch")
    assert one != two
    assert [launch["stream"] for launch in plain] == [one, two, one]
    first = {"call": "launch", "kernel": "k", "grid": [4, 6, 2], "block": [32, 4, 2], "extra": 0, "stream": one}
    parameters = [struct.pack("<Q", address), struct.pack("<f", 1.5), struct.pack("<i", -2), b"\xff\xff"]
    assert plain[0] == first | {
        "shared": 1000, "numAttrs": 0, "attributes": [], "parameters": [p.hex() for p in parameters],
    }  # fmt: skip
    parameters = [struct.pack("<Q", address), struct.pack("<f", -0.5), struct.pack("<i", 7), b"\x08\x00"]
    # Attribute 4 is the cluster's dimensions, 2 cooperative, 6 programmatic stream serialization.
    assert full == first | {
        "shared": 0, "numAttrs": 3, "attributes": [[4, [2, 3, 1]], [2, 1], [6, 1]], "stream": two,
        "parameters": [p.hex() for p in parameters],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("field", "attribute"),
    [("cluster=(2, 1, 1)", [4, [2, 1, 1]]), ("cooperative=True", [2, 1]), ("programmatic=True", [6, 1])],
)
def test_each_launch_attribute_alone(python, field, attribute):
    lines = f"""
shape = LaunchShape((2, 1, 1), (32, 1, 1), {field})
device.bind(load(types="u64"), shape, (np.uint64(1),)).launch(device.stream())
print("null")
"""
    (launch,) = called(python(PRELUDE + lines)[1], "launch")
    assert (launch["numAttrs"], launch["attributes"]) == (1, [attribute])


def test_dynamic_shared_memory_is_raised_and_never_lowered(python):
    lines = """
kernel, stream = load(static=1024, types="u64"), device.stream()
for kib in (16, 47, 64, 48, 64, 128, 0, 100):
    device.bind(kernel, LaunchShape((1, 1, 1), (32, 1, 1), kib << 10), (np.uint64(0),)).launch(stream)
print("null")
"""
    _, calls = python(PRELUDE + lines)
    # 47 KiB and the kernel's own 1 KiB are allowed from the start. Attribute 8 is the dynamic maximum.
    assert [(c["attribute"], c["value"]) for c in called(calls, "set")] == [(8, 64 << 10), (8, 128 << 10)]
    assert [c["shared"] >> 10 for c in called(calls, "launch")] == [16, 47, 64, 48, 64, 128, 0, 100]


@pytest.mark.parametrize(("gpu", "most"), [("A100", 163 << 10), ("H200", 227 << 10)])
def test_too_much_shared_memory_is_refused(python, gpu, most):
    lines = f"""
kernel = load(static=1024, types="u64")
shape = lambda shared: LaunchShape((1, 1, 1), (32, 1, 1), shared)
at_most, above = (refused(kernel, shape({most} - 1024 + more), np.uint64(0)) for more in (0, 1))
print(json.dumps([at_most, above]))
"""
    (at_most, above), calls = python(PRELUDE + lines, gpu)
    assert at_most is None
    assert f"{most + 1}, a block of {LIMITS[gpu].name} has at most {most}" in above
    assert [c["value"] for c in called(calls, "set")] == [most - 1024]


@pytest.mark.parametrize(("gpu", "kib", "resident"), [("MIG", 120, 16), ("A100", 120, 108), ("H100", 100, 264)])
def test_a_cooperative_grid_must_fit_at_once(python, gpu, kib, resident):
    lines = f"""
kernel = load(types="u64")
shape = lambda blocks: LaunchShape((blocks, 1, 1), (128, 1, 1), {kib} << 10, cooperative=True)
print(json.dumps([refused(kernel, shape(blocks), np.uint64(0)) for blocks in ({resident}, {resident} + 1)]))
"""
    (fits, above), calls = python(PRELUDE + lines, gpu)
    assert fits is None
    sms = LIMITS[gpu].sms
    assert f"grid {resident + 1} > {sms} SMs x {resident // sms} block(s)" in above
    # The driver answers 0 blocks to a question about more shared memory than the kernel has been allowed.
    asked = {"call": "occupancy", "threads": 128, "shared": kib << 10, "blocks": resident // sms}
    assert called(calls, "occupancy") == [asked] * 2


WHY_NOT = """
from lowlevel.device.cuda.device import open_device
from lowlevel.device.cuda.driver import probe
answers = []
for ask in (probe, open_device):
    try:
        answers.append(["returned", ask()])
    except Exception as error:
        answers.append([type(error).__name__, str(error)])
print(json.dumps(answers))
"""


def test_a_driver_that_does_not_match_is_broken_not_absent(python):
    answers, _ = python(WHY_NOT, init=803)
    for kind, text in answers:
        assert kind == "MissingError"
        assert text.startswith("CUDA_ERROR_SYSTEM_DRIVER_MISMATCH")
        assert "reinstall the driver" in text


def test_a_library_that_does_not_load_is_broken(python, tmp_path):
    (tmp_path / "libcuda.so.1").write_bytes(b"no library")
    answers, _ = python(WHY_NOT, folder=tmp_path)
    for kind, text in answers:
        assert kind == "MissingError"
        assert "driver is broken" in text


def test_no_gpu_is_no_driver(python):
    (probed, opened), calls = python(WHY_NOT, init=100)
    assert probed[0] == "returned"
    assert opened[0] == "NoDriverError"
    assert "no GPU is visible" in probed[1]
    assert opened[1] == probed[1]
    assert called(calls, "init")


def test_tensor_maps_are_aligned_and_passed_by_value(python):
    lines = """
buffer = device.allocate(64 * 128 * 2)
spec = TensorMap("bf16", (64, 128), (256,), (32, 64), swizzle="128B", l2_promotion=256)
maps = [device.tensor_map(spec, buffer) for _ in range(100)]
device.bind(load(types="b8"), LaunchShape((1, 1, 1), (32, 1, 1)), (maps[50],)).launch(device.stream())
print(json.dumps(buffer.address))
"""
    address, calls = python(PRELUDE + lines)
    encodes = called(calls, "encode")
    assert len({encode["map"] for encode in encodes}) == 100
    assert {encode["map"] % 128 for encode in encodes} == {0}
    # Type 9 is bf16; the modes are no interleave, 128-byte swizzle, 256-byte promotion, zeros out of bounds.
    asked = {"call": "encode", "type": 9, "global": address, "shape": [128, 64], "stride": 256, "box": [64, 32]}
    assert encodes[50] == asked | {"steps": [1, 1], "modes": [0, 3, 3, 0], "map": encodes[50]["map"]}
    (launch,) = called(calls, "launch")
    assert launch["parameters"] == [(struct.pack("<Q", address) + bytes(range(8, 128))).hex()]
