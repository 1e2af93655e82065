"""The table of GPUs against their data sheets, and occupancy against values worked out by hand."""

from dataclasses import replace

import pytest

from lowlevel.errors import UsageError
from lowlevel.hardware import GPUS, bandwidth, find, flop_per_clock, occupancy, peak, typical
from lowlevel.toolchain.arch import ARCHS

A100, H200, T4, A10 = GPUS["A100 SXM 80GB"], GPUS["H200"], GPUS["T4"], GPUS["A10"]


@pytest.mark.parametrize(
    ("limits", "threads", "registers", "shared", "blocks", "limited_by"),
    [
        (A100, 1024, 32, 0, 2, "threads"),  # 2048 threads an SM
        (A100, 128, 32, 0, 16, "threads"),
        (A100, 32, 16, 0, 32, "blocks"),  # 32 blocks an SM
        (A100, 256, 64, 0, 4, "registers"),  # 64 x 32 = 2048 a warp: 8 warps a quarter, 32 an SM
        (A100, 256, 65, 0, 3, "registers"),  # 65 x 32 = 2080 -> 2304: 7 warps a quarter, 28 an SM, 3 blocks of 8
        (A100, 256, 33, 0, 6, "registers"),  # 33 x 32 = 1056 -> 1280: 12 warps a quarter, 48 an SM
        (A100, 96, 40, 0, 16, "registers"),  # 1280: 12 warps a quarter; the SM as a whole would hold 51, 17 blocks
        (A100, 96, 255, 0, 2, "registers"),  # 8160 -> 8192: 2 warps a quarter, 8 an SM, 2 blocks of 3
        (A100, 384, 168, 0, 1, "registers"),  # 5376: 3 warps a quarter, 12 an SM
        (A100, 512, 162, 0, 0, "registers"),  # 82,944 registers of 65,536
        (A100, 128, 32, 40960, 4, "shared memory"),  # 41,984 each, with the system's 1 KiB; 167,936 an SM
        (A100, 128, 32, 40961, 3, "shared memory"),  # 42,112 each after rounding to 128
        (A100, 128, 32, 166912, 1, "shared memory"),  # all of the 163 KiB of a block
        (A100, 128, 32, 166913, 0, "shared memory"),
        (H200, 384, 168, 232448, 1, "registers"),
        (H200, 128, 32, 232449, 0, "shared memory"),
        (T4, 256, 32, 16384, 4, "threads"),  # no reserve before sm_80: 65,536 an SM
        (T4, 32, 16, 0, 16, "blocks"),
        (A10, 512, 40, 0, 3, "threads"),  # 1536 threads an SM
        (A100, 2048, 16, 0, 0, "threads"),  # a block has 1024 at most
    ],
)
def test_blocks_an_sm_holds(limits, threads, registers, shared, blocks, limited_by):
    held = occupancy(limits, threads, registers, shared)
    assert (held.blocks_per_sm, held.limited_by) == (blocks, limited_by)


def test_occupancy_counts_warps():
    held = occupancy(A100, 100, 32, 0)  # 4 warps, one of them part empty
    assert (held.blocks_per_sm, held.warps, held.fraction) == (16, 64, 1.0)
    assert occupancy(A100, 256, 128, 0).fraction == 0.25


@pytest.mark.parametrize(
    ("name", "unit", "tflops"),
    [
        ("A100 SXM 80GB", "fp32", 19.5),
        ("A100 SXM 80GB", "tf32", 156),
        ("A100 SXM 80GB", "bf16", 312),
        ("A100 SXM 80GB", "int8", 624),
        ("T4", "fp16", 65),
        ("A10", "fp16", 125),
        ("L4", "fp8", 242),
        ("H100 PCIe", "fp32", 51),
        ("H100 SXM", "fp32", 67),
        # Hopper's data sheets count tensor cores at 1830 MHz, we at the highest clock.
        ("H100 SXM", "bf16", 989.4 * 1980 / 1830),
        ("H200", "fp8", 1978.9 * 1980 / 1830),
    ],
)
def test_peak_is_the_data_sheets(name, unit, tflops):
    assert peak(GPUS[name], unit) == pytest.approx(tflops * 1e12, rel=0.01)


@pytest.mark.parametrize(
    ("name", "gb_per_s"),
    [
        ("A100 SXM 80GB", 2039),
        ("A100 SXM 40GB", 1555),
        ("A100 PCIe 80GB", 1935),
        ("T4", 320),
        ("A10", 600),
        ("L4", 300),
        ("L40S", 864),
        ("H100 SXM", 3350),
        ("H100 NVL", 3940),
        ("H200", 4800),
        ("GH200 96GB", 4020),
    ],
)
def test_bandwidth_is_the_data_sheets(name, gb_per_s):
    assert bandwidth(GPUS[name]) == pytest.approx(gb_per_s * 1e9, rel=0.01)


def test_h200_is_as_measured():
    assert (H200.sms, H200.shared_per_block_optin, H200.shared_per_sm) == (132, 232448, 233472)
    assert (H200.l2_bytes, H200.sm_clock_mhz, H200.memory_clock_mhz, H200.memory_bus_bits) == (
        62914560,
        1980,
        3201,
        6016,
    )
    assert peak(H200, "bf16") == 132 * 4096 * 1980e6
    assert bandwidth(H200) == 3201e6 * 2 * 6016 / 8


def test_a_unit_that_is_not_there_has_no_rate():
    assert flop_per_clock((8, 0), "fp8") is None
    assert flop_per_clock((3, 5), "fp32") is None
    assert peak(A100, "fp8") is None
    assert peak(A100, "none") is None


def test_a_peak_follows_the_clock_of_the_device():
    assert peak(replace(H200, sm_clock_mhz=990), "fp8") == peak(H200, "fp8") / 2


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("H200", "H200"),
        ("h200 nvl", "H200 NVL"),
        ("NVIDIA H100", "H100 SXM"),
        ("A100", "A100 SXM 80GB"),
        ("a100-pcie-40gb", "A100 PCIe 40GB"),
    ],
)
def test_find(name, found):
    assert find(name).name == found


def test_an_unknown_gpu_is_refused_with_near_names():
    with pytest.raises(UsageError, match=r"no GPU 'H300'.*H200") as caught:
        find("H300")
    assert "T4" not in str(caught.value)
    with pytest.raises(UsageError, match=r"T4.*B200"):
        find("Voodoo")
    with pytest.raises(UsageError):
        find("")


def test_every_architecture_has_a_typical_gpu():
    assert {arch: typical(arch).name for arch in ("sm_75", "sm_80", "sm_86", "sm_90a", "sm_100a")} == {
        "sm_75": "T4",
        "sm_80": "A100 SXM 80GB",
        "sm_86": "A10",
        "sm_90a": "H200",
        "sm_100a": "B200",
    }
    assert all(typical(arch) in GPUS.values() for arch in ARCHS)


def test_limits_hold_together():
    for gpu in GPUS.values():
        assert gpu.shared_per_block_optin + gpu.shared_reserved <= gpu.shared_per_sm
        assert gpu.arch in ARCHS
        assert occupancy(gpu, 32, 16, gpu.shared_per_block_optin).blocks_per_sm == 1
