"""What a launch costs the host: our Packet beside a bare cuLaunchKernelEx with prepared arguments.

python -m lowlevel.device.cuda.bench_launch [--json FILE]
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

from lowlevel.device.cuda.device import CudaDevice, open_device
from lowlevel.device.cuda.launch import configuration
from lowlevel.device.protocol import LaunchShape
from lowlevel.environment import environment
from lowlevel.results import Results, Row
from lowlevel.toolchain.binary import Request
from lowlevel.toolchain.build import build

_SOURCE = 'extern "C" __global__ void nothing(int* a, int* b, int* c, int m, int n, int k) {}\n'


def measure(device: CudaDevice, rounds: int = 51, launches: int = 200) -> dict[str, float]:
    """Microseconds a launch, each way, medians of interleaved rounds, and the median of the rounds' ratios.

    The queue is drained between rounds, so that the host never waits for the GPU.
    """
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "nothing.cu"
        source.write_text(_SOURCE)
        function = device.load(build(Request("cuda", source, device.limits.arch, ("nothing",)))).function("nothing")
    buffer, stream, shape = device.allocate(256), device.stream(), LaunchShape((1, 1, 1), (32, 1, 1))
    packet = device.bind(function, shape, [buffer, buffer, buffer, np.int32(1), np.int32(2), np.int32(3)])

    driver = device.driver
    values = [ctypes.c_uint64(buffer.address)] * 3 + [ctypes.c_int32(i) for i in (1, 2, 3)]
    pointers = (ctypes.c_void_p * 6)(*(ctypes.addressof(v) for v in values))
    address, config = ctypes.addressof(pointers), configuration(driver, shape)
    config.hStream = stream.native

    def ours() -> None:
        for _ in range(launches):
            packet.launch(stream)

    def bare() -> None:
        launch, native = driver.cuLaunchKernelEx, function.native
        for _ in range(launches):
            launch(config, native, address, 0)

    times: dict[str, list[float]] = {"packet_us": [], "bare_us": []}
    gc.disable()
    try:
        for number in range(rounds + 2):
            for name, way in (("packet_us", ours), ("bare_us", bare))[:: 1 if number % 2 else -1]:
                device.synchronize()
                began = time.perf_counter()
                way()
                if number >= 2:  # the first rounds warm up
                    times[name].append((time.perf_counter() - began) * 1e6 / launches)
    finally:
        gc.enable()
    device.synchronize()
    ratios = [a / b for a, b in zip(times["packet_us"], times["bare_us"], strict=True)]
    return {**{name: statistics.median(found) for name, found in times.items()}, "ratio": statistics.median(ratios)}


def rows(result: dict[str, float]) -> list[Row]:
    """Two rows of a results file: host time of each way; the packet's ratio is above 1 where it is the faster."""
    repro = "python -m lowlevel.device.cuda.bench_launch"
    shared = {"op": "launch", "language": "library", "status": "ok", "timer": "host", "repro": repro}
    bare = Row(variant="library/cuLaunchKernelEx", host_us=result["bare_us"], **shared)
    packet = Row(variant="launch/packet", host_us=result["packet_us"], **shared)
    packet.vs_best_library = 1 / result["ratio"]
    return [packet, bare]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="save the rows there")
    arguments = parser.parse_args()
    device = open_device()
    result = measure(device)
    print(
        f"{device.name}: a packet {result['packet_us']:.2f} us, bare cuLaunchKernelEx {result['bare_us']:.2f} us, "
        f"ratio {result['ratio']:.3f}"
    )
    if arguments.json:
        protocol = {"suite": "launch", "rounds": 51, "launches": 200}
        Results(environment(device), protocol, rows(result)).save(arguments.json)


if __name__ == "__main__":
    main()
