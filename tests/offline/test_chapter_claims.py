"""docs/chapter.md: what it computes, computed again, and its form; what other texts say of the same results.

The chapter speaks of shared memory, caches, arithmetic intensity, occupancy and tile sizes. What follows from rules
(banks, sectors, limits of a GPU) is worked out here by small functions, what the compiler decides is compiled, and what
was measured is read from the committed results. `says` then holds the document to each figure.
"""

import json
import math
import re
from collections import defaultdict
from functools import cache
from itertools import pairwise

import numpy as np
import pytest

from lowlevel import catalog, hardware, paths, suite, tuned
from lowlevel.catalog.entry import Variant
from lowlevel.errors import CompileError
from lowlevel.hardware import GPUS, bandwidth, flop_per_clock, occupancy, peak
from lowlevel.problems.gemm import Gemm
from lowlevel.results import Results
from lowlevel.toolchain import sass
from lowlevel.toolchain.binary import Request
from lowlevel.toolchain.build import build

ROOT = paths.kernel_root()
RESULTS = ROOT / "bench" / "results" / "h200"
SHIPPED = paths.tuned_root()


@cache
def words(path):
    """The words of a text, wherever its lines break: of a kernel file without the marks of its comments."""
    text = (ROOT / path).read_text()
    return " ".join((text.replace("//", " ") if path.endswith((".cu", ".ptx")) else text).split())


CHAPTER = words("docs/chapter.md")

T4, A100, H100, H200, B200 = (GPUS[name] for name in ("T4", "A100 SXM 40GB", "H100 SXM", "H200", "B200"))
LANES = range(32)


def says(text, where="docs/chapter.md"):
    """The document has these words."""
    assert text in words(where), f"{where} does not say: {text}"


def several(values, form):
    """'1.27, 1.25 and 1.24': figures as the document lists them."""
    *before, last = (format(value, form) for value in values)
    return f"{', '.join(before)} and {last}"


# Shared memory: 32 banks of 4-byte words. Lanes that ask for the same word share it; different words of one bank wait
# for each other. Good for accesses of at most 4 bytes a lane.
def wavefronts(words):
    """Passes that one access of a warp takes, from the word each lane asks for."""
    banks = defaultdict(set)
    for word in words:
        banks[word % 32].add(word)
    return max(len(different) for different in banks.values())


def column(pitch, k=5, swizzle=lambda row, col: col):
    """Lane x reads tile[x][k] of rows `pitch` words apart."""
    return wavefronts(row * pitch + swizzle(row, k) for row in LANES)


def row(pitch, r=5, swizzle=lambda row, col: col):
    """Lane x reads tile[r][x]."""
    return wavefronts(r * pitch + swizzle(r, col) for col in LANES)


def sectors(first, width, lanes=32):
    """32-byte sectors that a warp touches when each lane moves `width` bytes, one after the other from `first`."""
    return len({byte // 32 for byte in range(first, first + width * lanes)})


# Rooflines.
def ridge(gpu, unit="fp32"):
    """FLOP a byte of device memory at which arithmetic becomes the limit."""
    return peak(gpu, unit) / bandwidth(gpu)


def roof(gpu, flop_per_byte):
    """TFLOP/s that the device's memory allows at that intensity."""
    return bandwidth(gpu) * flop_per_byte / 1e12


def tile_intensity(bm, bn, element_bytes=4):
    """FLOP a byte loaded of a block tile: 2 BM BN BK / ((BM + BN) BK bytes)."""
    return 2 * bm * bn / ((bm + bn) * element_bytes)


def least_intensity(m, n, k, element_bytes=4):
    """FLOP a byte when every operand crosses the bus once."""
    return 2 * m * n * k / (element_bytes * (m * k + k * n + m * n))


def by_shared_loads(gpu, loads, fmas):
    """TFLOP/s when an SM issues one shared load a clock and each warp needs `loads` for `fmas`."""
    return gpu.sms * gpu.sm_clock_mhz * 1e6 * 64 * fmas / loads / 1e12


def wave_efficiency(tiles, slots):
    """Share of the slots' time that does work when equal tiles run in waves."""
    return tiles / (-(-tiles // slots) * slots)


def operand_stages(bm, bn, bk, element_bytes, stages):
    """Bytes of shared memory for a ring of A and B tiles."""
    return (bm + bn) * bk * element_bytes * stages


# 6.1 and 6.2: intensity and roofs.
def test_naive_intensity_and_its_roofs():
    says(f"0.25 x 1500 GB/s is {0.25 * 1500:.0f} GFLOP/s")
    says(f"19.5 / 0.375 is {19.5 / 0.375:.0f}")
    says(f"{peak(A100, 'fp32') / 1e12:.1f} TFLOP/s over 1555 GB/s is {ridge(A100):.1f} FLOP a byte")
    says(f"the 80 GB board needs {ridge(GPUS['A100 SXM 80GB']) / 0.25:.0f} times")
    says(f"T4 {roof(T4, 0.25) * 1000:.0f} GFLOP/s, A100 (40 GB) {roof(A100, 0.25) * 1000:.0f}")
    says(f"H200 {roof(H200, 0.25) * 1000:.0f}")
    says(f"2048 x 2304 x 768 has {least_intensity(2048, 2304, 768):.0f}")
    says(f"1024 cube has {least_intensity(1024, 1024, 1024):.0f} FLOP a byte")


def test_the_ridge_points():
    assert [round(ridge(gpu), 1) for gpu in (T4, A100, GPUS["A100 SXM 80GB"], H100, H200, B200)] == [
        25.4,
        12.5,
        9.6,
        20.0,
        13.9,
        9.1,
    ]
    rows = [
        f"| {name} | {peak(gpu, 'fp32') / 1e12:.1f} | {bandwidth(gpu) / 1e9:.0f} | {ridge(gpu):.1f} | "
        f"{peak(gpu, 'fp16') / 1e12:.0f} | {ridge(gpu, 'fp16'):.0f} |"
        for name, gpu in GPUS.items()
        if gpu in (T4, A100, GPUS["A100 SXM 80GB"], H100, H200, B200)
    ]
    for line in rows:
        says(line)


def test_tile_intensity_and_traffic():
    assert tile_intensity(32, 32) == 8.0
    assert tile_intensity(32, 32) / 0.25 == 32
    says("2 x 32 x 32 / ((32 + 32) x 4) = 8 FLOP a byte")
    says(f"8 x 1.5 TB/s is {8 * 1.5:.0f} TFLOP/s")
    loads = 2 * 1024**3 // 32
    assert loads / (2 * 1024**2) == 32
    says(f"{loads * 4 / 1e6:.0f} MB of loads for {2 * 1024**2 * 4 / 1e6:.1f} MB of operands")


def test_shared_loads_bound_the_tile():
    """40 loads for 32 FMAs where a row of As is read by fours, 64 where it is read word by word."""
    assert by_shared_loads(H200, 32, 32) == pytest.approx(peak(H200, "fp32") / 4e12)
    says(f"between {by_shared_loads(H200, 64, 32):.1f} (64 loads) and {by_shared_loads(H200, 40, 32):.1f} TFLOP/s (40)")
    says(f"T4's are {by_shared_loads(T4, 64, 32):.1f} and {by_shared_loads(T4, 40, 32):.1f}")
    says(f"T4's roof at 8 FLOP a byte is {roof(T4, 8):.2f} TFLOP/s")


# 6.3
def test_register_tiles_count():
    says(f"7200 of {peak(T4, 'fp32') / 1e9:.0f} GFLOP/s")
    says(f"1800 / 330 is {1800 / 330:.1f}")


def vector_passes(first_words):
    """Passes of a 16-byte access, from the first word of each lane's four: 8 lanes at a time."""
    groups = [first_words[lane : lane + 8] for lane in range(0, 32, 8)]
    return sum(wavefronts(word + i for word in group for i in range(4)) for group in groups)


def register_tile_passes(tm, split=False):
    """Passes of a warp of 16 x 16 threads for 8 steps of k, in 16-byte loads, of As[16 tm][8] and Bs[8][16 tm].

    split: a thread's columns are groups of four that lie 64 apart, else they are neighbours.
    """
    rows_of_a = [vector_passes([((t // 16) * tm + i) * 8 + k for t in LANES]) for i in range(tm) for k in (0, 4)]
    columns_of_b = [
        vector_passes([(t % 16) * 4 + 16 * j if split else (t % 16) * tm + j for t in LANES])
        for _ in range(8)
        for j in range(0, tm, 4)
    ]
    return sum(rows_of_a), sum(columns_of_b)


def test_passes_of_the_register_tiles():
    assert register_tile_passes(4) == (8 * 4, 8 * 4)
    assert register_tile_passes(8) == (16 * 4, 16 * 8)
    assert register_tile_passes(8, split=True) == (16 * 4, 16 * 4)
    says(f"{sum(register_tile_passes(4))} / 128 = {sum(register_tile_passes(4)) / 128} an FMA")
    says(f"{sum(register_tile_passes(8))} passes for 512 FMAs, {sum(register_tile_passes(8)) / 512} against 0.5")
    says(f"{sum(register_tile_passes(8, True))} passes, {sum(register_tile_passes(8, True)) / 512}")
    says(f"The tile needs {40 / 32} to {64 / 32:.0f}")


def test_padding_moves_the_register_tiles_conflicts():
    """Of As[64][pitch], word by word: a read of As[4 ty + i][k], and the store of a fresh tile."""
    read = {pitch: wavefronts((t // 16) * 4 * pitch + 3 for t in LANES) for pitch in (8, 9)}
    store = {pitch: wavefronts((t // 8) * pitch + t % 8 for t in LANES) for pitch in (8, 9)}
    assert read == {8: 2, 9: 1}
    assert store == {8: 1, 9: 2}


def test_a_float_one_read_as_half_is_zero():
    assert np.frombuffer(np.float32(1).tobytes()[:2], np.float16)[0] == 0
    says("0x3F800000")


# 6.4: banks.
def test_banks_of_a_32_by_32_tile():
    assert row(32) == 1
    assert column(32) == 32
    assert column(33) == row(33) == 1
    assert wavefronts([7] * 32) == 1  # a broadcast


def test_the_inner_loop_of_the_tile_has_no_conflict_to_cure():
    for pitch in (32, 33):
        for y in (0, 31):
            assert wavefronts([y * pitch + 9 for _ in LANES]) == 1  # As[y][k]: one word
            assert wavefronts(y * pitch + x for x in LANES) == 1  # As[y][x] stored
    assert row(32) == 1  # Bs[k][x], loaded and stored


def test_an_eight_row_swizzle_leaves_four_way_conflicts():
    def eight(r, c):
        return c ^ (r & 7)

    assert {column(32, k, eight) for k in range(32)} == {4}
    assert {row(32, r, eight) for r in range(32)} == {1}
    assert {column(32, k, lambda r, c: c ^ r) for k in range(32)} == {1}
    assert {row(32, r, lambda r, c: c ^ r) for r in range(32)} == {1}
    says("eight banks, four rows each: 4 wavefronts, down from 32")
    assert [c ^ (1 & 7) for c in range(4)] == [1, 0, 3, 2]  # a 16-byte vector of row 1 no longer lies in order
    says("words 0 1 2 3 of row 1 lie at 1 0 3 2")


def test_the_eight_row_swizzle_is_right_for_16_byte_chunks():
    """ldmatrix reads 8 rows of 16 bytes at a time from rows of 128 bytes: that is what `& 7` is made for."""
    plain = [32 * r + 4 * 2 + word for r in range(8) for word in range(4)]
    swizzled = [32 * r + 4 * (2 ^ (r & 7)) + word for r in range(8) for word in range(4)]
    assert (wavefronts(plain), wavefronts(swizzled)) == (8, 1)


def test_any_odd_pitch_is_free_of_column_conflicts():
    assert {column(pitch) for pitch in range(1, 130, 2)} == {1}
    assert all(column(pitch) > 1 for pitch in range(2, 130, 2))
    assert (33 * 4) % 16 == 4  # and rows of an odd number of words do not start on 16 bytes

    def halves(pitch):
        return wavefronts((pitch * r + 5) // 2 for r in LANES)

    assert (halves(32), halves(33), halves(34)) == (16, 2, 1)


# 6.5.1
def test_sectors():
    assert sectors(0, 4) == 4
    assert sectors(0, 16) == 16
    assert sectors(4, 4) == 5  # off by one word
    assert sectors(16, 1, 16) == 1  # nothing smaller than 32 bytes moves


# 6.5.2
def test_the_overlap_drawing():
    serial, overlapped = lambda n: 2 * 2 * n, lambda n: 2 * (n + 1)
    assert (serial(3), overlapped(3)) == (12, 8)
    assert overlapped(10**6) / serial(10**6) == pytest.approx(0.5, abs=1e-5)


def test_two_blocks_of_the_tile_share_an_sm():
    shared = 2 * 32 * 32 * 4
    assert [occupancy(g, 1024, 32, shared).blocks_per_sm for g in (T4, A100, H100, H200)] == [1, 2, 2, 2]


# 6.5.3
def test_shared_memory_sizes():
    def kib(name):
        return (GPUS[name].shared_per_sm // 1024, GPUS[name].shared_per_block_optin // 1024)

    assert kib("A100 SXM 40GB") == (164, 163)
    assert kib("A10") == kib("L4") == kib("L40S") == (100, 99)
    assert kib("H100 SXM") == kib("H200") == kib("B200") == (228, 227)
    assert {gpu.shared_per_block for gpu in GPUS.values()} == {48 * 1024}


def test_typical_shared_memory():
    assert operand_stages(128, 128, 64, 2, 2) == 64 * 1024
    assert operand_stages(256, 128, 64, 2, 4) == 196608 == 192 * 1024
    assert occupancy(H100, 384, 128, 196608).blocks_per_sm == 1
    assert (128 * 128 + 2 * 2 * 64 * 128) * 2 == 96 * 1024  # Q, and two stages of K and V
    says("196,608 bytes")


# 6.5.4
def test_what_a_separate_epilogue_costs():
    m, n = 2048, 2304
    moved = 2 * m * n * 2
    says(f"{moved / 1e6:.1f} MB, {moved / bandwidth(H200) * 1e6:.1f} us")
    says(f"K = {2 * 600e12 / bandwidth(H200):.0f}")
    weights, output = 2 * 4096 * 16384, 2 * 2 * 16384
    says(f"{output / weights:.2%} of the {weights / 1e6:.0f} MB")
    says(f"{weights / bandwidth(H200) * 1e6:.0f} us")


# 6.5.5
def test_decode_figures():
    says(f"13 GB / 1.5 TB/s is {13 / 1.5:.1f} ms")
    says(f"{13e9 / bandwidth(H200) * 1e3:.1f} ms on an H200")
    bits = 4 + 16 / 128
    says(f"16 / {bits} = {16 / bits:.2f}")
    says(f"{13 / 1.5 / (16 / bits):.1f} ms")


# 6.5.6
def dispatch(m, n, k, sms):
    """The chapter's branches, in its order."""
    if m * n < 16 * 16 * sms and k > 2048:
        return "stream-k"
    return "gemv" if m == 1 else "gemm"


def test_split_k_and_the_dispatch():
    says(f"8 / 108 = {8 / 108:.1%}")
    assert dispatch(128, 128, 16384, 108) == "stream-k"
    assert dispatch(1, 16384, 4096, 108) == "stream-k"  # decode never reaches its own branch
    assert dispatch(128, 256, 16384, 108) == "gemm"  # two tiles of 128 x 128 on 108 SMs
    says(f"{16 * 16 * 108:,}")


# 6.5.7
def test_launches_of_a_decode_step():
    says(f"50 x 10 us is {50 * 10 / 1000:.1f} ms")


# 6.6: the four rules.
def test_rule_1_shared_memory_does_not_follow_the_product():
    square, long = operand_stages(128, 128, 32, 4, 2), operand_stages(512, 32, 32, 4, 2)
    says(f"{square // 1024} KiB for 128 x 128 and {long // 1024} KiB for 512 x 32")
    says(f"{256 * 128 * 4 // 1024} KiB of registers")
    assert H200.registers_per_sm * 4 == 256 * 1024


def test_rule_3_neither_suffices_nor_is_needed():
    assert wave_efficiency(132, 132) == 1.0
    says(f"265 blocks give {wave_efficiency(265, 132):.2f}")
    says(f"128 give {wave_efficiency(128, 132):.2f}")


# 6.7
def test_the_qkv_figures():
    m, n, k = 2048, 2304, 768
    says(f"{2 * m * n * k / 1e9:.2f} GFLOP")
    says(f"{70 ** (1 / 7):.2f}")


# 6.9
def test_exercise_3_occupancy_does_not_move_with_bk():
    def blocks(gpu):
        return [occupancy(gpu, 1024, 32, 2 * 32 * bk * 4).blocks_per_sm for bk in (8, 16, 32, 64)]

    assert [blocks(gpu) for gpu in (T4, A100, H200)] == [[1] * 4, [2] * 4, [2] * 4]

    def register(gpu):
        return [occupancy(gpu, 256, 64, 2 * 64 * bk * 4).blocks_per_sm for bk in (8, 16, 32, 64)]

    assert [register(gpu) for gpu in (T4, A100, H200)] == [[4, 4, 4, 2], [4] * 4, [4] * 4]


def test_exercise_4_tiles_of_other_sizes():
    assert H200.threads_per_block < 64 * 64

    def two_rows(pitch):
        return wavefronts((t % 16) * pitch + t // 16 for t in LANES)

    assert (two_rows(16), two_rows(17), two_rows(18)) == (8, 2, 1)
    assert sectors(0, 4, 16) == 2  # a row of 16 floats: 64 bytes, two whole sectors
    assert (column(64), column(65)) == (32, 1)


def test_exercise_7_odd_shapes_cost_their_partial_tiles():
    def blocks(size):
        return -(-size // 32)

    work = blocks(2047) * blocks(2049) * blocks(2051) * 32**3 / (2047 * 2049 * 2051)
    says(f"{work - 1:.1%} more work")


def test_exercise_6_a_pass_beside_the_product():
    moved = 2 * 1024 * 1024 * 4
    says(f"{moved / 1e6:.1f} MB, {moved / bandwidth(H200) * 1e6:.1f} us")


# 6.10
def test_wgmma_and_tmem_sizes():
    says(f"{64 * 256 * 16 * 2 / flop_per_clock(H200.capability, 'fp16'):.0f} clocks of an SM")
    says(f"64 x 256 / 128 = {64 * 256 // 128} fp32 sums a thread")
    says(f"128 lanes x 512 columns x 4 bytes are {128 * 512 * 4 // 1024} KiB")
    says(f"740 / 989 is {740 / 989:.0%}")
    says(f"1.2 / 1.979 is {1.2 / 1.979:.0%}")
    says(f"700 / 989 is {700 / 989:.0%}")
    assert round(132 * 4096 * 1.83e9 / 1e12) == 989  # the data sheet counts at 1830 MHz
    fp4 = 2 * peak(B200, "fp8") / 1e15
    says(f"{fp4:.1f} PFLOP/s")
    says(f"{7.7 / fp4:.0%}")


def test_fewer_registers_are_not_more_blocks():
    def warps(threads, registers):
        return occupancy(B200, threads, registers, 0).warps

    assert [(warps(t, 96), warps(t, 64)) for t in (128, 256)] == [(20, 32), (16, 32)]
    assert [occupancy(B200, 384, r, 200 * 1024).blocks_per_sm for r in (96, 64)] == [1, 1]


# 6.11
def test_a_scaled_epilogue_is_a_rounding_error_of_the_main_loop():
    main_loop = 2 * 128 * 256 * 4096 / 4096
    multiply = 128 * 256 / 128
    says(f"{multiply:.0f} clocks beside {main_loop:,.0f}")


# What the compiler decides.
REGISTER_TILE = """
extern "C" __global__ void __launch_bounds__(256)
probe(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int N, int K) {
    constexpr int BM = 16 * TM, BN = 16 * TN, BK = 8;
    __shared__ float As[BM][BK + PAD], Bs[BK][BN];
    const int x = threadIdx.x % 16, y = threadIdx.x / 16;
    float acc[TM][TN] = {};
    for (int k_block = 0; k_block < K; k_block += BK) {
        for (int i = threadIdx.x; i < BM * BK; i += 256)
            As[i / BK][i % BK] = A[(blockIdx.y * BM + i / BK) * K + k_block + i % BK];
        for (int i = threadIdx.x; i < BN * BK; i += 256)
            Bs[i / BN][i % BN] = B[(k_block + i / BN) * N + blockIdx.x * BN + i % BN];
        __syncthreads();
#pragma unroll
        for (int k = 0; k < BK; ++k)
#pragma unroll
            for (int i = 0; i < TM; ++i)
#pragma unroll
                for (int j = 0; j < TN; ++j) acc[i][j] += As[y * TM + i][k] * Bs[k][x * TN + j];
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < TM; ++i)
#pragma unroll
        for (int j = 0; j < TN; ++j)
            C[(blockIdx.y * BM + y * TM + i) * N + blockIdx.x * BN + x * TN + j] = acc[i][j];
}
"""
VECTOR = """
extern "C" __global__ void probe(const float* A, float4* C, int offset) {
    C[threadIdx.x] = *reinterpret_cast<const float4*>(A + offset + threadIdx.x);
}
"""
WMMA = """
extern "C" __global__ void probe(const unsigned* A, float* C) {
    unsigned a[8], b[8];
    float c[8] = {};
    for (int i = 0; i < 8; ++i) { a[i] = A[threadIdx.x + 32 * i]; b[i] = A[threadIdx.x + 32 * (i + 8)]; }
    asm volatile("wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32 {%0, %1, %2, %3, %4, %5, %6, %7}, "
        "{%8, %9, %10, %11, %12, %13, %14, %15}, {%16, %17, %18, %19, %20, %21, %22, %23}, "
        "{%0, %1, %2, %3, %4, %5, %6, %7};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(a[4]), "r"(a[5]), "r"(a[6]), "r"(a[7]),
          "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3]), "r"(b[4]), "r"(b[5]), "r"(b[6]), "r"(b[7]));
    for (int i = 0; i < 8; ++i) C[threadIdx.x + 32 * i] = c[i];
}
"""


def compiled(folder, text, arch, entry="probe", **defines):
    """Resources and opcode counts of one kernel."""
    source = folder / "probe.cu"
    source.write_text(text)
    binary = build(Request("cuda", source, arch, (entry,), tuple((k, str(v)) for k, v in defines.items())))
    counted = sass.instructions(sass.function_text(sass.sass(binary.cubin), entry))
    return binary.entries[entry].resources, counted


def test_cp_async_is_sm_80s(tmp_path):
    text = 'extern "C" __global__ void probe() { asm volatile("cp.async.commit_group;"); }'
    with pytest.raises(CompileError, match="sm_80"):
        compiled(tmp_path, text, "sm_75")
    assert compiled(tmp_path, text, "sm_80")


needs_disassembler = pytest.mark.skipif(sass.disassembler() is None, reason="nvdisasm is missing")


@needs_disassembler
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_padding_the_tile_by_one_costs_vector_loads(tmp_path, arch):
    """The compiler reads a row of As by fours; a row of 33 words does not start on 16 bytes."""
    plain = (ROOT / "cu" / "gemm" / "02_tiled.cu").read_text()
    padded = plain.replace("float As[BM][BK];", "float As[BM][BK + 1];")
    assert padded != plain
    tile = {"BM": 32, "BN": 32, "BK": 32}
    loads = [
        {name: n for name, n in compiled(tmp_path, text, arch, "gemm", **tile)[1].items() if name.startswith("LDS")}
        for text in (plain, padded)
    ]
    assert loads == [{"LDS": 32, "LDS.128": 8}, {"LDS": 64}]


@needs_disassembler
@pytest.mark.parametrize(
    ("arch", "opcode", "count"),
    [("sm_75", "HMMA.1688.F32", 4), ("sm_80", "HMMA.16816.F32", 2), ("sm_90", "HMMA.16816.F32", 2)],
)
def test_a_wmma_becomes_several_instructions(tmp_path, arch, opcode, count):
    _, counted = compiled(tmp_path, WMMA, arch)
    assert {name: n for name, n in counted.items() if name.startswith("HMMA")} == {opcode: count}
    says("four HMMA.1688 on sm_75, two HMMA.16816 on sm_80 and sm_90")


@needs_disassembler
@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90"])
def test_a_vector_load_stays_a_vector_load(tmp_path, arch):
    """Whatever the address turns out to be: nothing falls back to single words."""
    _, counted = compiled(tmp_path, VECTOR, arch)
    (load,) = (name for name in counted if name.startswith("LDG"))
    assert ".128" in load


@needs_disassembler
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize(("tm", "tn", "at_most"), [(4, 4, 64), (8, 8, 140), (8, 16, 255), (16, 8, 255)])
def test_register_tiles_do_not_spill(tmp_path, arch, tm, tn, at_most):
    resources, counted = compiled(tmp_path, REGISTER_TILE, arch, TM=tm, TN=tn, PAD=0)
    assert resources.spills == 0
    assert tm * tn < resources.registers <= at_most
    assert counted["FFMA"] == 8 * tm * tn
    assert counted["LDS.128"] == 2 * tm + 2 * tn


# What was measured: the committed rows of one H200.
@cache
def rows(file):
    return Results.load(RESULTS / f"{file}.json").rows


def row_of(variant, *shape, file="main", dtype="fp32", language="cuda", epilogue="none", config=""):
    """The one row of a file: `shape` is m, n, k, or m, n of a transpose, or the side of either.

    config: what stands in the configuration's name; without it the row is the one that no sweep asked for.
    """
    language = "library" if variant.startswith("library/") else language
    operation = "gemm" if len(shape) == 3 or not variant.startswith("transpose/") else "transpose"
    m, n, k = {1: shape * 3, 2: (*shape, None), 3: shape}[len(shape)]
    wanted = (operation, variant, language, dtype, epilogue, m, n, k if operation == "gemm" else None)
    (row,) = [
        r
        for r in rows(file)
        if (r.op, r.variant, r.language, r.dtype, r.epilogue, r.m, r.n, r.k) == wanted
        and (config in r.config if config else r.chosen_by != "sweep")
    ]
    assert row.status == "ok"
    return row


RUNGS = tuple(
    f"gemm/{name}"
    for name in (
        "01_naive",
        "02_tiled",
        "03_padded_tile",
        "04_register_tile",
        "05_large_register_tile",
        "06_vectorised",
        "07_async",
        "08_warp_tile",
    )
)
NAIVE, TILED, PADDED, REGISTER, LARGE, VECTORISED, ASYNC, WARP = RUNGS
BY_WMMA, WIDE = "gemm/10_wmma", "gemm/14_wide"
SPLIT, FAST, IN_CLUSTERS = "gemm/16_split_k", "gemm/25_fast", "gemm/27_split_k_cluster"
CUBLAS, CUBLASLT = "library/cublas", "library/cublaslt"
SIZES = (1024, 2048, 4096, 8192)
QKV, ODD, SMALL_ODD, LONG = (2048, 2304, 768), (2047, 2049, 2051), (1023, 1025, 1027), (128, 128, 16384)
SHAPES = (*((size,) for size in SIZES), QKV, ODD)


def rate(variant, *shape, **which):
    """TFLOP/s."""
    return row_of(variant, *shape, **which).tflops


def times(one, other, *shape, **which):
    """How many times as fast one variant is as the other."""
    return rate(one, *shape, **which) / rate(other, *shape, **which)


def span(values, form):
    return f"{min(values):{form}} to {max(values):{form}}"


def test_a_row_is_found_or_missed():
    assert row_of(REGISTER, 1024, file="chapter", config="64x64x8,TM=4,TN=4,PAD=0").chosen_by == "sweep"
    assert row_of("transpose/02_shared", 4096).op == "transpose"
    with pytest.raises(ValueError, match="not enough values"):
        row_of(REGISTER, 1000)


# 6.1 and 6.2
def test_the_naive_kernel_is_over_the_chapters_roof():
    rates = [rate(NAIVE, *shape) for shape in SHAPES]
    over = [value / roof(H200, 0.25) for value in rates]
    says(f"`01_naive` reaches {span(rates, '.1f')} TFLOP/s on the H200, {span(over, '.0f')} times its cap")
    says(f"the share is {span([100e12 * value / peak(H200, 'fp32') for value in rates], '.0f')} % of the peak")


def test_the_tile_is_where_its_shared_loads_put_it():
    rates = [rate(TILED, *shape) for shape in SHAPES]
    assert max(rates) < by_shared_loads(H200, 40, 32)
    assert max(rates) < roof(H200, 8) / 4
    says(f"under its roof of {roof(H200, 8):.0f} by memory. Measured: {span(rates, '.1f')}")
    faster = span([times(TILED, NAIVE, *shape) for shape in SHAPES], ".1f")
    says(f"the tile is {faster} times as fast as the naive kernel on the H200")
    says(f"On the H200 the step is worth {faster}")
    (below,) = {f"{peak(H200, 'fp32') / 1e12 / value:.0f}" for value in rates}
    behind = span([times(CUBLAS, TILED, *shape) for shape in SHAPES], ".0f")
    says(f"the tile is {below} times from the peak and {behind} times from cuBLAS")


# 6.3
def test_the_large_register_tile_beside_the_small():
    behind, *ahead = [times(LARGE, REGISTER, size) for size in SIZES]
    says(f"has {several(ahead, '.2f')} times the rate of `04_register_tile` at 2048, 4096 and 8192")
    says(f"and {behind:.2f} times at 1024")
    says(f"a factor of {register_passes_an_fma(4) / register_passes_an_fma(8):.2f}")
    says(f"is {times(VECTORISED, REGISTER, 4096):.2f} times as fast as 04 at 4096")
    tiles, sms = (1024 // 128) ** 2, H200.sms
    says(f"At 1024 there are {tiles} tiles of 128 x 128: {sms - tiles} of the {sms} SMs idle")
    says(f"which has {(1024 // 64) ** 2} tiles where they have {tiles}")


def register_passes_an_fma(tm):
    return sum(register_tile_passes(tm)) / (8 * tm * tm)


def test_the_best_rung_beside_the_libraries():
    says(f"own rate here is {row_of(CUBLAS, 4096).percent_of_peak:.0f} % of the peak at 4096")
    says(f"There `07_async` reaches {row_of(ASYNC, 4096).vs_cublas:.2f} of it")
    best = [row_of(WARP, size) for size in SIZES]
    says(f"{several([r.vs_cublas for r in best], '.2f')} times its rate at 1024, 2048, 4096 and 8192")
    says(f"({several([r.vs_best_library for r in best], '.2f')} times the best library's)")
    says(f"08 is {row_of(WARP, *ODD).vs_cublas:.2f} times as fast at 2047 x 2049 x 2051")
    says(f"and {row_of(WARP, *SMALL_ODD, file='chapter').vs_cublas:.2f} times at 1023 x 1025 x 1027")
    assert all(row_of(WARP, *shape).vs_cublas > 1 for shape in SHAPES)
    shapes = {(r.m, r.n, r.k) for r in rows("chapter") if r.variant == WARP}
    assert {s for s in shapes if row_of(WARP, *s, file="chapter").vs_cublas < 1} == {SMALL_ODD, LONG}
    ahead = max(r.vs_cublas for r in rows("main") if r.variant == CUBLASLT and r.vs_cublas)
    says(f"cuBLASLt itself is up to {100 * ahead - 100:.0f} % ahead of cuBLAS here")


def test_tensor_cores_run_on_odd_sizes():
    odd, even = rate(CUBLAS, *ODD, dtype="tf32"), rate(CUBLAS, 2048, dtype="tf32")
    assert odd > peak(H200, "fp32") / 1e12
    assert f"{even / odd:.0f}" == "4"
    says(f"in tf32 cublas reaches {odd:.0f} TFLOP/s, above the {peak(H200, 'fp32') / 1e12:.1f} that fp32 cores have")
    says(f"a quarter of the {even:.0f} of the 2048 cube")


def test_libraries_stay_under_ninety_per_cent_of_the_peak():
    best = []
    for dtype in ("fp16", "bf16"):
        best.append(max((row_of(name, 8192, dtype=dtype) for name in (CUBLAS, CUBLASLT)), key=lambda r: r.tflops))
    says(f"{best[0].tflops:.0f} (fp16) and {best[1].tflops:.0f} TFLOP/s (bf16)")
    says(f"{best[0].percent_of_peak:.0f} and {best[1].percent_of_peak:.0f} % of the peak at {H200.sm_clock_mhz} MHz")
    says(f"At the {span([r.sm_clock_mhz / 1000 for r in best], '.1f')} GHz that they ran at")
    there = [r.percent_of_peak * H200.sm_clock_mhz / r.sm_clock_mhz for r in best]
    says(f"they are at {several(there, '.0f')} % of it")
    says(f"run at {rate(CUBLAS, 4096, dtype='fp16'):.0f} TFLOP/s at 4096")


def test_rungs_on_tensor_cores_against_the_peak_and_their_own_ceiling():
    wmma, wide = (row_of(name, 8192, file="gemm-ampere-ladder", dtype="bf16") for name in (BY_WMMA, WIDE))
    says(f"`10_wmma` has {wmma.tflops:.0f} TFLOP/s and `14_wide` {wide.tflops:.0f}")
    says(f"{wmma.percent_of_peak:.0f} and {wide.percent_of_peak:.0f} % of that peak")
    (ceiling,) = [r for r in rows("gemm-ampere") if r.variant == "probe/mma_ceiling" and r.dtype == "bf16"]
    says(f"mma.sync, reaches {ceiling.tflops:.0f} there")


def test_what_tensor_cores_bring_in_the_ladder():
    fp32 = rate(WARP, 4096)
    gains = [rate(name, 4096, file="gemm-ampere-ladder", dtype="bf16") / fp32 for name in (BY_WMMA, WIDE)]
    says(f"`10_wmma` is {gains[0]:.1f} times as fast in bf16 as `08_warp_tile` in fp32, and `14_wide` {gains[1]:.1f}")


def test_the_readme_says_how_far_mma_sync_comes():
    (ceiling,) = [r.tflops for r in rows("gemm-ampere") if r.variant == "probe/mma_ceiling" and r.dtype == "bf16"]
    found = [
        r for r in rows("gemm-ampere") if (r.variant, r.language, r.dtype, r.layout) == (WIDE, "cuda", "bf16", "NT")
    ]
    cubes = [next(r for r in found if r.m == r.n == r.k == size) for size in (2048, 4096, 8192)]
    says(f"`gemm/14_wide` has {several([r.vs_cublas for r in cubes], '.2f')} of the rate of cuBLAS", "README.md")
    says(f"{several([r.tflops / ceiling for r in cubes], '.2f')} of what mma.sync reaches", "README.md")
    cool = [r.vs_cublas for r in rows("gemm-ampere-cool") if r.variant == WIDE]
    says(f"in cool air it has {several(cool, '.2f')}", "README.md")


def test_the_readme_says_where_another_configuration_would_be_taken_now(monkeypatch):
    """Than the one measured. A number that came later is not in the row's name: it is 0 in what was measured."""
    monkeypatch.setattr(paths, "tuned_root", lambda: SHIPPED)
    kernels, other = {k.label: k for k in catalog.kernels()}, []
    for path in sorted(RESULTS.glob("*.json")):
        for row in rows(path.stem):
            if row.op != "gemm" or not row.chosen_by.startswith(("tuned", "rule")):
                continue
            kernel = kernels[f"{row.language}:{row.variant}"]
            type_ = next(t for t in kernel.types if (t.dtype, t.accumulate) == (row.dtype, row.accumulate))
            problem = Gemm(row.m, row.n, row.k, type_, row.layout)
            config, _ = tuned.configuration(kernel, type_, row.layout, problem, hardware.find("H200"))
            now = set(Variant(kernel, type_, row.layout, config).config_text.split(","))
            then = set(row.config.split(","))
            if then - now or not all(word.endswith("=0") for word in now - then):
                other.append((row.variant, f"{row.m}x{row.n}x{row.k}", f"{path.stem}.json"))
    assert other == [
        ("gemm/14_wide", "2344x928x1824", "gemm-ampere-seeded.json"),
        ("gemm/25_fast", "8192x8192x8192", "gemm-hopper-ladder.json"),
        ("gemm/25_fast", "1874x1580x8939", "gemm-hopper-seeded.json"),
    ]
    says("now for `gemm/25_fast` at 1874x1580x8939 in `gemm-hopper-seeded.json` and at 8192x8192x8192 in", "README.md")
    says("in `gemm-hopper-ladder.json`, and for `gemm/14_wide` at 2344x928x1824 in `gemm-amp", "README.md")


def test_the_readme_says_what_mma_sync_has_at_seeded_shapes():
    def ratios(file):
        found = [r for r in rows(file) if (r.variant, r.language) == (WIDE, "cuda")]
        return [r.vs_cublas for r in found if (r.dtype, r.layout) == ("bf16", "NT")]

    suite, seeded = ratios("gemm-ampere"), ratios("gemm-ampere-seeded")
    assert (len(suite), len(seeded)) == (5, 20)
    says(f"have the geometric mean {mean(suite):.2f}, stand twenty seeded ones that nobody chose, with", "README.md")
    says(f"that nobody chose, with {mean(seeded):.2f} (`gemm-ampere-seeded.json`)", "README.md")


def test_the_readme_says_what_split_k_brings():
    def best(variant, launch, file):
        found = [r for r in rows(file) if (r.variant, r.language, r.m, r.n, r.k) == (variant, "cuda", *LONG)]
        return max(r.vs_cublas for r in found if re.search(launch, r.config))

    ours = (best(SPLIT, launch, "gemm-ampere") for launch in ("PDL=[12]", "PDL=0"))
    theirs = (best(IN_CLUSTERS, launch, "gemm-hopper") for launch in ("PDL=[12]", "PDL=0"))
    text = "`gemm/16_split_k` is {:.2f} times as fast as cuBLAS with programmatic launch, and {:.2f} times without"
    says(text.format(*ours), "README.md")
    text = "`gemm/27_split_k_cluster`, on Hopper's instructions, was {:.2f} and {:.2f} times"
    says(text.format(*theirs), "README.md")


def test_the_readme_says_how_far_ahead_fp8_is():
    found = {(r.m, r.n, r.k): r for r in rows("gemm-hopper-fp8") if "PROMOTE=0" in r.config and r.vs_best_library}
    asked = [found[shape] for shape in ((4096,) * 3, (8192,) * 3, (16384,) * 3, (4096, 7168, 16384))]
    ratios = several([r.vs_best_library for r in asked], ".3f")
    says(f"In fp8 `gemm/26_fp8` has {ratios} of the rate of cuBLASLt with fast accumulation at", "README.md")
    assert [r.ratio_low < 1 for r in asked] == [True, False, False, True]
    says("(the intervals of the first and the last include 1)", "README.md")
    assert len(found) == 12
    assert all(r.ratio_high > 1 for r in found.values())
    says("of the suite's twelve shapes that cuBLASLt takes none is behind by its interval", "README.md")


def test_the_readme_says_what_the_fast_family_has_at_seeded_shapes():
    seeded = [r for r in rows("gemm-hopper-seeded") if r.variant == FAST]
    capped, least = (mean([min(r.vs_best_library, 1.15) for r in seeded]), min(seeded, key=lambda r: r.vs_best_library))
    assert (len(seeded), sum(r.ratio_low > 1 for r in seeded), sum(r.ratio_high < 1 for r in seeded)) == (20, 10, 8)
    says(f"nobody chose `gemm/25_fast` has {capped:.2f} in bf16 NT, counted likewise: ten are ahead", "README.md")
    says(f"{least.m}x{least.n}x{least.k} farthest with {least.vs_best_library:.2f}", "README.md")


def hopper(dtype, layout):
    """Shape -> its rows of 25 in the suite's 13 shapes, as chosen first."""
    found = {}
    for row in rows("gemm-hopper"):
        asked = (row.variant, row.dtype, row.layout) == (FAST, dtype, layout)
        if asked and (row.m, row.n, row.k) != (4095, 4097, 4097):
            found.setdefault((row.m, row.n, row.k), []).append(row)
    return {shape: sorted(members, key=lambda r: r.chosen_by == "named") for shape, members in found.items()}


def mean(ratios):
    return math.exp(math.fsum(map(math.log, ratios)) / len(ratios))


def test_the_readme_says_how_far_ahead_the_fast_family_is():
    kinds = [("bf16", "NT"), ("bf16", "NN"), ("fp16", "NT"), ("fp16", "NN")]
    means, large, alone, behind, behind_alone, level = [], [], [], [], [], []
    for kind in kinds:
        shapes = hopper(*kind)
        assert len(shapes) == 13
        chosen = {shape: members[0] for shape, members in shapes.items()}
        plain = {shape: next((r for r in m if "PDL=0" in r.config), m[0]) for shape, m in shapes.items()}
        means.append(mean([min(r.vs_best_library, 1.15) for r in chosen.values()]))
        large.append(mean([r.vs_best_library for shape, r in chosen.items() if min(shape) >= 2048]))
        alone.append(mean([min(r.vs_best_library, 1.15) for r in plain.values()]))
        behind += [(kind, shape, r.vs_best_library) for shape, r in chosen.items() if r.ratio_high < 1]
        level += [(kind, shape, r.vs_best_library) for shape, r in chosen.items() if r.vs_best_library < 1]
        behind_alone += [shape for shape, r in plain.items() if r.ratio_high < 1]
    named = [f"{value:.3f} in {dtype} {layout}" for value, (dtype, layout) in zip(means, kinds, strict=True)]
    says(f"each shape counted at most 1.15, {', '.join(named[:-1])} and {named[-1]};", "README.md")
    says(f"that have no side below 2048 {several(large, '.3f')}", "README.md")
    assert not behind
    says("Of the 52 none is behind by its interval", "README.md")
    below = {f"{'x'.join(map(str, shape))} in {' '.join(kind)}": ratio for kind, shape, ratio in level}
    assert list(below) == ["8192x8192x1024 in bf16 NT", "8192x28672x4096 in bf16 NT", "4096x4096x4096 in fp16 NT"]
    words = "8192x8192x1024 and 8192x28672x4096 in bf16 NT and 4096 in fp16 NT have {:.3f}, {:.3f} and {:.3f}"
    says(words.format(*below.values()), "README.md")
    says(f"the means are {several(alone, '.3f')}", "README.md")
    assert (len(behind_alone), max(map(math.prod, behind_alone))) == (7, 2048 * 2304 * 768)
    says("and seven are behind, none larger than 2048x2304x768", "README.md")
    ratios = [members[0].vs_best_library for members in hopper("bf16", "NT").values()]
    says(f"{mean([min(v, 1.15) for v in ratios]):.2f} of the best library's rate in the geometric mean")
    says(f"{span(ratios, '.2f')} each")


def test_the_hopper_ladder_rises():
    cube = [r for r in rows("gemm-hopper-ladder") if r.m == 8192 and r.language == "cuda" and r.dtype == "bf16"]
    rates = [r.tflops for r in sorted(cube, key=lambda r: r.variant)]
    assert len(rates) == 6
    assert rates == sorted(rates)
    says("By wgmma each rung of 20 to 25 is faster than the one before it at 8192", "README.md")
    lowered = [r for r in rows("gemm-hopper-ladder") if r.language == "mlir" and r.variant[5:7] in ("23", "24")]
    assert {(r.m, r.dtype) for r in lowered} == {(m, d) for m in (4096, 8192) for d in ("bf16", "fp16")}
    says(f"have {span([r.vs_best_library for r in lowered], '.2f')} of the best library's", "README.md")


def test_the_roads_are_the_rows_of_one_run():
    names = [*RUNGS, CUBLAS, CUBLASLT]
    roads = [(name, "fp32", ".1f") for name in names] + [(CUBLAS, d, ".0f") for d in ("tf32", "fp16", "bf16")]
    for variant, dtype, form in roads:
        found = [row_of(variant, size, file="chapter", dtype=dtype) for size in (1024, 4096)]
        assert {r.layout for r in found} == {"NN"}
        cells = " | ".join(format(r.tflops, form) for r in found)
        label = f"{dtype} | " if dtype != "fp32" else ""
        says(f"{label}`{variant.removeprefix('gemm/')}` | {cells} |")
    says(f"the product lasts {row_of(CUBLAS, 1024, file='chapter', dtype='fp16').median_us:.0f} us in fp16")


@pytest.mark.parametrize("file", ["main", "chapter"])
def test_the_ladder_rises_but_where_it_is_said(file):
    def steps(size):
        """Rungs that are slower than the one before."""
        return [one for before, one in pairwise(RUNGS) if times(one, before, size, file=file) < 1]

    assert steps(4096) == [PADDED]
    assert steps(1024) == [PADDED, LARGE]
    assert all(times(rung, REGISTER, 1024, file=file) < 1 for rung in (LARGE, VECTORISED, ASYNC))
    says("At 4096 every rung is faster than the one before it but 03")
    says("At 1024 05 to 07 are behind 04")


# 6.4
def test_the_transposes_measured():
    shared, padded, swizzled = (
        [row_of(f"transpose/{name}", size, file="chapter") for size in (4096, 8192)]
        for name in ("02_shared", "03_padded", "04_swizzled")
    )

    def faster(ones, others):
        return several([one.gb_per_s / other.gb_per_s for one, other in zip(ones, others, strict=True)], ".2f")

    says(f"is {faster(padded, shared)} times as fast as 02 at 4096 and 8192")
    says(f"{several([r.gb_per_s for r in shared], '.0f')} GB/s become {several([r.gb_per_s for r in padded], '.0f')}")
    says(f"{several([r.vs_best_library for r in padded], '.2f')} of the driver's copy (`chapter.json`)")
    (share,) = {f"{r.vs_best_library:.2f}" for r in swizzled}
    says(f"{several([r.gb_per_s for r in swizzled], '.0f')} GB/s at 4096 and 8192, {share} of the driver's copy both")
    says(f"`04_swizzled` is {faster(swizzled, padded)} times as fast as 03 at 4096 and 8192")
    for size in (4096, 8192):  # the driver's copy is the yardstick of both
        copies = [r for r in rows("chapter") if r.m == size and "copy" in r.variant]
        assert max(copies, key=lambda r: r.gb_per_s).variant == "library/copy"


def test_the_profilers_conflicts():
    """Passes of each line with conflicts, a launch of the line."""
    kernels = json.loads((RESULTS / "conflicts" / "transpose.json").read_text())["kernels"]
    lines = {kernel["variant"].partition(",")[0]: kernel["lines"] for kernel in kernels}
    passes = [line["wavefronts"] / line["executed"] for line in lines["cuda:transpose/02_shared[fp32"]]
    assert passes == [32] * 4
    assert lines["cuda:transpose/03_padded[fp32"] == lines["cuda:transpose/04_swizzled[fp32"] == []
    says("each of the four reads of `transpose/02_shared` takes 32 passes (`conflicts/transpose.json`)")


# 6.5
def test_vectors_and_copies_in_flight():
    vectors = [times(VECTORISED, LARGE, size) for size in SIZES]
    says(f"`06_vectorised` is {several(vectors, '.2f')} times as fast as `05_large_register_tile` at 1024, 2048")
    says(f"{100 * vectors[0] - 100:.0f} % at 1024 and {100 * vectors[1] - 100:.0f} % at 2048")
    says(f"cuBLAS is {several([times(CUBLAS, REGISTER, size) for size in SIZES[1:]], '.2f')} times as fast as `04_")
    few, *flight = [times(ASYNC, VECTORISED, size) for size in SIZES]
    says(f"bring {several(flight, '.2f')} of it")
    says(f"at 4096 the larger tile brings {times(LARGE, REGISTER, 4096):.2f}, 06 another {vectors[2]:.2f}")
    says(f"cuBLAS is {times(CUBLAS, ASYNC, 4096):.2f} times as fast as 07")
    says(f"alone on their SMs, they bring {few:.2f}")


def test_a_pass_and_a_fused_epilogue_measured():
    """Microseconds over the product without an epilogue."""
    shapes = ((1024,) * 3, QKV, (4096, 4096, 128))

    def cost(variant, shape, epilogue="bias_relu"):
        with_it, without = (row_of(variant, *shape, file="epilogues", epilogue=e) for e in (epilogue, "none"))
        return with_it.median_us - without.median_us

    alone, fused, library = ([cost(variant, shape) for shape in shapes] for variant in (CUBLAS, WARP, CUBLASLT))
    says(f"after cublasSgemm costs {several(alone, '.1f')} us at 1024, 2048 x 2304 x 768 and 4096 x 4096 x 128")
    says(f"the bytes alone take {several([8 * m * n / bandwidth(H200) * 1e6 for m, n, _ in shapes], '.1f')}")
    products = [row_of(CUBLAS, *shape, file="epilogues").median_us for shape in shapes]
    says(f"{several([100 * a / p for a, p in zip(alone, products, strict=True)], '.0f')} % of the product")
    says(f"Fused, the same costs {several(fused, '.1f')} us in `08_warp_tile`")
    says(f"and {several(library, '.1f')} in cuBLASLt")
    long = shapes[2]
    silu, residual = ((cost(WARP, long, e), cost(CUBLAS, long, e)) for e in ("bias_silu", "residual"))
    says(f"a SiLU {silu[0]:.1f} us ({silu[1]:.1f} as a kernel of its own)")
    says(f"a residual {residual[0]:.1f} ({residual[1]:.1f}; cuBLASLt's {cost(CUBLASLT, long, 'residual'):.1f})")
    says(f"beside {row_of(CUBLAS, *QKV, dtype='bf16').median_us:.1f} us for cuBLAS's product at K = 768")
    says(f"beside {products[0]:.0f} us of cuBLAS's product")
    one = 100 * fused[0] / row_of(WARP, 1024, file="epilogues").median_us
    says(f"takes {alone[0]:.1f} us as a kernel after cublasSgemm, and {fused[0]:.1f} us in `08_warp_tile`, {one:.1f} %")


def test_one_tile_with_a_long_sum():
    one_sm = peak(H200, "fp32") / 1e12 / H200.sms
    large, tiled, warp, cublas = (rate(v, *LONG, file="chapter") for v in (LARGE, TILED, WARP, CUBLAS))
    says(f"reaches {large:.2f} TFLOP/s of the {one_sm:.2f} of one of the H200's SMs, and cublasSgemm {cublas:.1f}")
    says(f"cublasSgemm's {cublas:.1f} TFLOP/s are more than {int(cublas / one_sm)} SMs can do")
    says(f"`02_tiled` with {(128 // 32) ** 2} blocks has {tiled:.2f}, `08_warp_tile` with 2 has {warp:.2f}")
    assert row_of(WARP, *LONG, file="chapter").config.startswith("64x128x")


def test_one_tile_with_a_long_sum_in_slices():
    def best(variant, launch, file="gemm-hopper"):
        found = [r for r in rows(file) if r.variant == variant and (r.m, r.n, r.k) == LONG and r.language != "ptx"]
        return max((r for r in found if re.search(launch, r.config)), key=lambda r: r.tflops)

    def blocks(row):
        assert row.config.startswith("64x64x")
        return (128 // 64) ** 2 * int(re.search(r"SPLITS=(\d+)", row.config)[1])

    ours, theirs = best(SPLIT, "PDL=[12]", "gemm-ampere"), best(IN_CLUSTERS, "PDL=[12]")
    text = f"`16_split_k` in {blocks(ours) // 4} slices ({blocks(ours)} blocks) reaches {ours.tflops:.1f} TFLOP/s"
    says(f"{text}, where cuBLAS has {best(CUBLAS, '', 'gemm-ampere').tflops:.1f}")
    plain, meeting = best(SPLIT, "PDL=0", "gemm-ampere"), best("gemm/15_split_k_cooperative", "SPLITS", "gemm-ampere")
    text = f"without programmatic launch it is {plain.tflops:.1f}, and {meeting.tflops:.1f} for"
    says(f"{text} `15_split_k_cooperative` (`gemm-ampere.json`)")
    text = f"`27_split_k_cluster` in {blocks(theirs) // 4} ({blocks(theirs)} blocks) had {theirs.tflops:.1f}"
    says(f"{text}, and {best(IN_CLUSTERS, 'PDL=0').tflops:.1f} without (`gemm-hopper.json`)")
    kernels = [k for k in catalog.kernels() if k.operation == "gemm" and any("SPLITS" in c for c in k.configs)]
    assert not any(t.dtype == "fp32" for k in kernels for t in k.types)
    says("None of the fp32 rungs splits K over blocks")


def test_the_launches_measured():
    packet, _ = rows("launch")
    hosts = [r.host_us for r in rows("main") if r.language in ("cuda", "ptx") and r.host_us]
    says(f"{packet.host_us:.1f} us a launch from Python, called in a row (`launch.json`)")
    says(f"{span(hosts, '.1f')} for our kernels in the main suite")
    says(f"a single launch would be timed with its {packet.host_us:.0f} us")


# 6.7
def test_from_the_tile_to_the_library_at_the_qkv_shape():
    tiled, fp32 = rate(TILED, *QKV), rate(CUBLAS, *QKV)
    cublas, best = (rate(name, *QKV, dtype="bf16") for name in (CUBLAS, CUBLASLT))
    says(f"cuBLAS is {cublas / tiled:.0f} times and the best library {best / tiled:.0f} times as fast")
    says(f"({cublas:.0f} and {best:.0f} against {tiled:.1f} TFLOP/s")
    says(f"cuBLAS gains {cublas / fp32:.0f} times from fp32 to bf16 at this shape ({fp32:.0f} to {cublas:.0f} TFLOP/s)")


def test_the_ladders_steps_at_the_qkv_shape():
    steps = [times(one, before, *QKV) for before, one in pairwise(RUNGS)]
    assert len(steps) == 7
    says(f"are {several(steps, '.2f')} at this shape, {times(WARP, NAIVE, *QKV):.1f} in all")
    large = row_of(LARGE, *QKV)
    places = H200.sms * occupancy(H200, 256, large.registers, large.shared_bytes).blocks_per_sm
    says(f"05 has {2048 // 128 * 2304 // 128} tiles for {places} places")
    says(f"{large.tflops:.1f} TFLOP/s, and {rate(LARGE, *QKV, file='chapter'):.1f} in `chapter.json`.)")


# 6.9
def test_exercise_1_measured():
    gains = [times(REGISTER, TILED, size) for size in SIZES[:3]]
    says(f"`04_register_tile` is {several(gains, '.2f')} times as fast as `02_tiled` at 1024, 2048 and 4096")


def test_exercise_2_measured():
    says(f"has {several([times(PADDED, TILED, size) for size in SIZES], '.2f')} of 02's rate at 1024, 2048")
    padded, plain = (sweep_of_04(8, pad).tflops for pad in (1, 0))
    says(f"with its pad has {padded / plain:.2f} times the rate that it has without at 1024")
    files = [json.loads(file.read_text())["kernels"] for file in sorted((RESULTS / "conflicts").glob("*.json"))]
    counted = {kernel["variant"].partition(":")[2].partition("[")[0] for kernels in files for kernel in kernels}
    assert {name[5:7] for name in counted if not name.startswith("transpose/")} == {"10", "11", "12", "13", "14"}
    says("counters were read for the transposes and the tensor-core rungs 10 to 14 (`conflicts/`)")
    says("and for none of the fp32 rungs")


def sweep_of_04(bk, pad):
    return row_of(REGISTER, 1024, file="chapter", config=f"64x64x{bk},TM=4,TN=4,PAD={pad}")


def test_exercise_3_measured():
    padded, plain = ([sweep_of_04(bk, pad) for bk in (8, 16, 32, 64)] for pad in (1, 0))
    says(f"runs at {several([r.tflops for r in padded], '.1f')} TFLOP/s with BK = 8, 16, 32 and 64 at 1024")
    says(f"without its pad at {several([r.tflops for r in plain], '.1f')}")
    for swept in (padded, plain):
        assert max(swept, key=lambda r: r.tflops) is swept[-1]
        blocks = [occupancy(H200, 256, r.registers, r.shared_bytes).blocks_per_sm for r in swept]
        assert (blocks[0], blocks[-1]) == (4, 2)
        assert swept[-1].registers == 128
        assert blocks[-1] * H200.sms >= (1024 // 64) ** 2
    says("gives 04's threads 128 registers, which leaves 2 blocks an SM, and 256 tiles have room all the same")


def test_exercise_7_measured():
    says(f"it is {100 * rate(TILED, 2048) / rate(TILED, *ODD) - 100:.1f} % slower than at 2048")
    share = rate(WARP, *SMALL_ODD, file="chapter") / rate(WARP, 1024, file="chapter")
    says(f"has {share:.2f} of its rate at 1024 (`chapter.json`)")


# What other texts say of the same rows.
def test_the_kernels_headers_say_what_was_measured():
    padded, plain, long = sweep_of_04(8, 1).tflops, sweep_of_04(8, 0).tflops, sweep_of_04(64, 1).tflops
    header = "cu/gemm/04_register_tile.cu"
    says(f"on an H200 they are as fast as each other at 1024 ({padded:.1f} and {plain:.1f} TFLOP/s)", header)
    says(f"at 1024 on an H200 {long / padded:.1f} times the rate", header)
    small, large = (rate(v, 1024, file="chapter") for v in (REGISTER, LARGE))
    says(f"{large:.1f} TFLOP/s on an H200 where 04 has {small:.1f}", "cu/gemm/05_large_register_tile.cu")


def test_the_readme_says_what_was_measured():
    naive, tiled, best = (row_of(variant, 4096).vs_cublas for variant in (NAIVE, TILED, WARP))
    assert (round(1 / naive), round(1 / tiled)) == (9, 6)
    says("the naive kernel reaches a ninth of cuBLAS's fp32 rate at 4096, the tile a sixth", "README.md")
    says(f"`gemm/08_warp_tile` {best:.2f} times it ({row_of(WARP, 1024).vs_cublas:.2f} at 1024)", "README.md")
    says("At 4096 every rung is faster than the one before it but 03", "README.md")
    by_hand = {v: 100 * rate(v, 4096, language="ptx") / rate(v, 4096) - 100 for v in (NAIVE, TILED, REGISTER, ASYNC)}
    ahead = [by_hand[v] for v in (TILED, REGISTER, ASYNC)]
    says(f"PTX of 02, 04 and 07 is {span(ahead, '.0f')} % ahead of its CUDA C++ twin", "README.md")
    says(f"that of 01 {-by_hand[NAIVE]:.0f} % behind", "README.md")


# The document's own form.
VERDICTS = ("Holds", "Holds here", "Holds in part", "Does not hold", "Not measured", "To be measured")


def claims():
    """Each claim's text, from its bullet to the next."""
    text = (ROOT / "docs" / "chapter.md").read_text()
    return [part.split("\n\n")[0] for part in re.split(r"^- (?=\*)", text, flags=re.MULTILINE)[1:]]


def test_every_claim_has_one_verdict():
    assert len(claims()) > 60
    for claim in claims():
        (verdict,) = re.findall(r"\*\*(.+?)\*\*", " ".join(claim.split()))
        assert verdict.rstrip(".") in VERDICTS, claim


def test_what_is_still_to_be_measured_names_rungs_that_no_results_file_has():
    """And when one has them, this fails until the text says what was found."""
    assert "<!--" not in CHAPTER
    text = CHAPTER[CHAPTER.index("## 6.1") :].lower().replace("*", "")
    names = re.findall(r"to be measured[^.:]*, by the (gemv rungs|rungs from \d+ on)", text)
    assert names
    assert len(names) == text.count("to be measured")
    measured = {r.variant for file in RESULTS.glob("*.json") for r in Results.load(file).rows}
    numbers = {int(variant[5:7]) for variant in measured if variant.startswith("gemm/")}
    for name in names:
        if name == "gemv rungs":
            assert not any(kernel.name.startswith("gemv/") for kernel in catalog.kernels())
            says("by the gemv rungs, of which there is none yet")
            assert not any(variant.startswith("gemv/") for variant in measured), name
        else:
            first = int(name.split()[2])
            assert not numbers & set(range(first, first + 10)), name


def test_sections_stand_in_the_chapters_order():
    sections = re.findall(r"^## (6\.\d+)", (ROOT / "docs" / "chapter.md").read_text(), re.MULTILINE)
    assert sections == [f"6.{n}" for n in (1, 2, 3, 4, 5, 6, 7, 9, 10, 11)]


def test_the_chapters_suite_has_its_roads():
    groups = suite.load("chapter").groups
    at_1024 = [g.problem for g in groups if g.problem.operation == "gemm" and g.problem.dimensions["m"] == 1024]
    assert {p.type.dtype for p in at_1024} >= {"fp32", "tf32", "fp16"}
    assert {v.kernel.operation for g in groups for v in g.variants} == {"gemm", "transpose"}
