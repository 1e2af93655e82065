"""Bank conflicts of gemm 10 to 14: what `study banks` counts for each kernel's layout is what ncu counted on an H200.

`bench/results/h200/conflicts/mma.json` has every SASS line with conflicts, at 1024 x 1024 x 1024; a kernel's other
accesses of shared memory have none.
"""

import json

import pytest

from lowlevel import catalog, paths
from lowlevel.study import banks

ROOT = paths.kernel_root()
LANES = range(32)
KERNELS = json.loads((ROOT / "bench" / "results" / "h200" / "conflicts" / "mma.json").read_text())["kernels"]
COUNTED = {kernel["variant"]: kernel["lines"] for kernel in KERNELS}
WMMA, MMA, SWIZZLE = "cuda:gemm/10_wmma", "cuda:gemm/11_mma", "cuda:gemm/12_swizzle"
RINGS = ("cuda:gemm/13_multistage", "cuda:gemm/14_wide")


def variants(*labels: str) -> list:
    """Those that were counted."""
    found = [catalog.find(name) for name in COUNTED]
    return [variant for variant in found if variant.kernel.label in labels]


def of(*labels: str):
    return pytest.mark.parametrize("variant", variants(*labels), ids=lambda v: v.name)


def has(path: str, *lines: str) -> None:
    """The formulas here are the source's."""
    text = (ROOT / path).read_text()
    assert all(line in text for line in lines), path


def padded(config, row: int, chunk: int) -> int:
    """Byte of a chunk of 16 where rows of BK elements of 2 bytes are padded by PAD."""
    return 2 * (config["BK"] + config["PAD"]) * row + 16 * chunk


def swizzled(config, row: int, chunk: int) -> int:
    """The same where chunks change places: `swizzled` of swizzle.cuh."""
    row_bytes = 2 * config["BK"]
    sharing, places = max(1, 128 // row_bytes), min(8, row_bytes // 16)
    return row_bytes * row + 16 * (chunk ^ row // sharing % places)


def loads(config, address) -> set[tuple[int, int]]:
    """(passes, passes of words that lay evenly) of every ldmatrix.x4 of every warp: 16 rows by 2 chunks of A, and of B,
    whose second 8 rows are the third and fourth matrix."""
    rows_of_a = [(first + lane % 16, lane // 16) for first in range(0, config["BM"], 16) for lane in LANES]
    rows_of_b = [
        (first + lane % 8 + lane // 16 * 8, lane // 8 % 2) for first in range(0, config["BN"], 16) for lane in LANES
    ]
    found = set()
    for step in range(0, config["BK"] // 8, 2):
        named = [address(config, row, step + chunk) for row, chunk in rows_of_a + rows_of_b]
        for i in range(0, len(named), 32):
            phases = banks.phases(named[i : i + 32], "ldmatrix.x4")
            found.add((sum(phase.wavefronts for phase in phases), banks.ideal(phases)))
    return found


def stores(config, address) -> set[int]:
    """Passes of every store of 16 bytes a lane, along the rows of A's tile."""
    chunks = config["BK"] // 8
    named = [address(config, row, chunk) for row in range(config["BM"]) for chunk in range(chunks)]
    return {banks.wavefronts(named[i : i + 32], "st.16") for i in range(0, len(named), 32)}


def counted(variant) -> set[tuple[float, float]]:
    """(passes, ideal) of a launch of each line with conflicts."""
    lines = COUNTED[variant.name]
    assert all(line["sass"].startswith("LDSM.16.M88.4 ") for line in lines)
    return {(line["wavefronts"] / line["executed"], line["ideal"] / line["executed"]) for line in lines}


@of(WMMA, MMA)
def test_rows_of_128_bytes_take_32_passes_and_a_pad_cures_them(variant):
    """wmma.load is ldmatrix, of the same 16 x 16 elements."""
    has(
        "cu/gemm/10_wmma.cu",
        "constexpr int PITCH = BK + PAD;",
        "wmma_load_a(a[i], shared_address(&As[warp_m + 16 * i][step])",
    )
    has(
        "cu/gemm/11_mma.cu",
        "Operand As[BM][PITCH];",
        "&As[warp_m + MMA_M * i + lane % 16][step + lane / 16 * 8]",
        "&Bs[warp_n + MMA_N * j + lane % 8 + lane / 16 * 8]",
        "[step + lane / 8 % 2 * 8]",
        "reinterpret_cast<uint4*>(&Bs[row + i * ROWS][8 * chunk])",
    )
    expected = {0: {(32, 4)}, 8: {(4, 4)}}[variant.config["PAD"]]
    assert loads(variant.config, padded) == expected
    assert counted(variant) == {line for line in expected if line[0] > line[1]}
    assert stores(variant.config, padded) == {4}


def test_every_load_of_unpadded_rows_is_counted():
    """Of 16 x 16 elements: 4 of A and 2 of B for each of 4 steps."""
    for label in (WMMA, MMA):
        (variant,) = (v for v in variants(label) if v.config["PAD"] == 0)
        blocks, warps = (1024 // 128) ** 2, 8
        executed = sum(line["executed"] for line in COUNTED[variant.name])
        assert executed == blocks * warps * (1024 // variant.config["BK"]) * 4 * (4 + 2)


@of(SWIZZLE, *RINGS)
def test_swizzled_rows_take_4(variant):
    has("cu/include/swizzle.cuh", "row * ROW_BYTES + (chunk ^ row / SHARING % PLACES) * CHUNK_BYTES")
    has("cu/gemm/12_swizzle.cu", "swizzled<ROW_BYTES>(warp_n + lane % 8 + lane / 16 * 8, lane / 8 % 2)")
    has("cu/include/operand_tile.cuh", "swizzled<Tile::ROW_BYTES>(side + 8 * side_half + line, k_half)")
    assert loads(variant.config, swizzled) == {(4, 4)}
    assert stores(variant.config, swizzled) == {4}
    assert counted(variant) == set()


def test_plain_rows_would_take_32():
    """What the XOR is for."""
    config = variants(SWIZZLE)[0].config
    assert loads(config, lambda config, row, chunk: 2 * config["BK"] * row + 16 * chunk) == {(32, 4)}


def test_no_kernel_with_a_swizzle_or_a_pad_has_a_line_with_conflicts():
    """Of both languages."""
    rungs = {"10_wmma", "11_mma", "12_swizzle", "13_multistage", "14_wide"}
    assert {catalog.find(name).kernel.rung for name in COUNTED} == rungs
    for rung in rungs:
        free = [name for name, lines in COUNTED.items() if rung in name and not lines]
        assert {name.partition(":")[0] for name in free} == {"cuda", "ptx"}
    assert all("PAD=0" in name for name, lines in COUNTED.items() if lines)
