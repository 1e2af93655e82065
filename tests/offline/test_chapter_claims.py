"""docs/chapter.md: what it computes, computed again, and its form.

The chapter speaks of shared memory, caches, arithmetic intensity, occupancy and tile sizes. What follows from rules
(banks, sectors, limits of a GPU) is worked out here by small functions, what the compiler decides is compiled, and what
was measured is read from the committed results. `says` then holds the document to each figure.
"""

import re
from collections import defaultdict

import numpy as np
import pytest

from lowlevel import paths, suite
from lowlevel.errors import CompileError
from lowlevel.hardware import GPUS, bandwidth, flop_per_clock, occupancy, peak
from lowlevel.results import Results
from lowlevel.toolchain import sass
from lowlevel.toolchain.binary import Request
from lowlevel.toolchain.build import build

ROOT = paths.kernel_root()
CHAPTER = " ".join((ROOT / "docs" / "chapter.md").read_text().split())

T4, A100, H100, H200, B200 = (GPUS[name] for name in ("T4", "A100 SXM 40GB", "H100 SXM", "H200", "B200"))
LANES = range(32)


def says(text):
    """The document has these words, wherever its lines break."""
    assert text in CHAPTER, f"docs/chapter.md does not say: {text}"


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
@pytest.fixture(scope="module")
def rows():
    return Results.load(ROOT / "bench" / "results" / "h200" / "main.json").rows


def rate(rows, variant, shape, dtype="fp32", language=""):
    """TFLOP/s of the best row that fits."""
    found = [
        r.tflops
        for r in rows
        if (r.variant, r.dtype, (r.m, r.n, r.k)) == (variant, dtype, shape) and r.language == (language or "library")
    ]
    return max(found)


CUBES = [(size,) * 3 for size in (1024, 2048, 4096, 8192)]


def test_the_rates_quoted_are_those_of_the_file(rows):
    cube, qkv = CUBES[0], (2048, 2304, 768)
    naive, tiled = (rate(rows, f"gemm/{name}", cube, language="cuda") for name in ("01_naive", "02_tiled"))
    fp32, tf32, fp16 = (rate(rows, "library/cublas", cube, dtype) for dtype in ("fp32", "tf32", "fp16"))
    best = rate(rows, "library/cublaslt", cube)
    says(f"naive {naive:.1f}, tile {tiled:.1f}, cuBLAS fp32 {fp32:.1f} (best library {best:.1f}), tf32 {tf32:.0f}")
    says(f"fp16 {fp16:.0f} (tensor rows in NT)")
    fp16, bf16 = (rate(rows, "library/cublaslt", CUBES[3], dtype) for dtype in ("fp16", "bf16"))
    share = [100 * value / (peak(H200, "fp16") / 1e12) for value in (fp16, bf16)]
    says(f"{fp16:.0f} (fp16) and {bf16:.0f} TFLOP/s (bf16), {share[0]:.0f} and {share[1]:.0f} % of the peak")
    cublas, best = (rate(rows, f"library/{name}", qkv, "bf16") for name in ("cublas", "cublaslt"))
    tiled = rate(rows, "gemm/02_tiled", qkv, language="cuda")
    says(f"cuBLAS is {cublas / tiled:.0f} times and the best library {best / tiled:.0f} times as fast")
    says(f"({cublas:.0f} and {best:.0f} against {tiled:.1f} TFLOP/s")
    says(f"({rate(rows, 'library/cublas', qkv):.0f} to {cublas:.0f} TFLOP/s)")
    hosts = [r.host_us for r in rows if r.language in ("cuda", "ptx") and r.host_us]
    says(f"{min(hosts):.1f} to {max(hosts):.1f} for our kernels in the main suite")


def test_the_naive_kernel_is_over_the_chapters_roof(rows):
    rates = [rate(rows, "gemm/01_naive", shape, language="cuda") for shape in CUBES]
    assert all(4 < value / roof(H200, 0.25) < 6 for value in rates)


def test_the_tile_is_where_its_shared_loads_put_it(rows):
    for shape in CUBES:
        tiled = rate(rows, "gemm/02_tiled", shape, language="cuda")
        assert 0.95 * by_shared_loads(H200, 64, 32) < tiled < by_shared_loads(H200, 40, 32)
        assert 1.2 < tiled / rate(rows, "gemm/01_naive", shape, language="cuda") < 1.8
        assert tiled < roof(H200, 8) / 4


def test_tensor_cores_run_on_odd_sizes(rows):
    odd = rate(rows, "library/cublas", (2047, 2049, 2051), "tf32")
    assert odd > peak(H200, "fp32") / 1e12
    assert 3.5 < rate(rows, "library/cublas", (2048,) * 3, "tf32") / odd < 4.5


def test_libraries_stay_under_ninety_per_cent_of_the_peak(rows):
    for dtype in ("fp16", "bf16"):
        best = max(rate(rows, f"library/{name}", CUBES[3], dtype) for name in ("cublas", "cublaslt"))
        assert 0.55 < best / (peak(H200, dtype) / 1e12) < 0.7


def test_from_the_tile_to_the_library_at_the_qkv_shape(rows):
    shape = (2048, 2304, 768)
    tiled, fp32 = rate(rows, "gemm/02_tiled", shape, language="cuda"), rate(rows, "library/cublas", shape)
    assert 50 < rate(rows, "library/cublas", shape, "bf16") / tiled < 65
    assert 50 < rate(rows, "library/cublaslt", shape, "bf16") / tiled < 70
    assert 11 < rate(rows, "library/cublas", shape, "bf16") / fp32 < 14


def test_odd_shapes_cost_what_their_partial_tiles_cost(rows):
    slower = rate(rows, "gemm/02_tiled", (2048,) * 3, language="cuda") / rate(
        rows, "gemm/02_tiled", (2047, 2049, 2051), language="cuda"
    )
    assert 1.01 < slower < 1.05


# The document's own form.
VERDICTS = ("Holds", "Holds here", "Holds in part", "Does not hold", "To be measured")


def claims():
    """Each claim's text, from its bullet to the next."""
    text = (ROOT / "docs" / "chapter.md").read_text()
    return [part.split("\n\n")[0] for part in re.split(r"^- (?=\*)", text, flags=re.MULTILINE)[1:]]


def test_every_claim_has_one_verdict():
    assert len(claims()) > 60
    for claim in claims():
        (verdict,) = re.findall(r"\*\*(.+?)\*\*", " ".join(claim.split()))
        assert verdict.rstrip(".") in VERDICTS, claim
        assert verdict.rstrip(".") != "To be measured" or "<!-- measure: " in claim or "with 6.5" in claim, claim


def test_what_is_still_to_be_measured_is_said_once_and_in_full():
    marks = re.findall(r"<!-- measure: (\S+) (.+?) -->", CHAPTER)
    assert CHAPTER.count("<!--") - CHAPTER.count("lowlevel:table") == len(marks)
    names = [name for name, _ in marks]
    assert len(set(names)) == len(names)
    assert all(len(text) > 30 for _, text in marks)


def test_sections_stand_in_the_chapters_order():
    sections = re.findall(r"^## (6\.\d+)", (ROOT / "docs" / "chapter.md").read_text(), re.MULTILINE)
    assert sections == [f"6.{n}" for n in (1, 2, 3, 4, 5, 6, 7, 9, 10, 11)]


def test_the_chapters_suite_has_its_roads():
    groups = suite.load("chapter").groups
    at_1024 = [g.problem for g in groups if g.problem.operation == "gemm" and g.problem.dimensions["m"] == 1024]
    assert {p.type.dtype for p in at_1024} >= {"fp32", "tf32", "fp16"}
    assert {v.kernel.operation for g in groups for v in g.variants} == {"gemm", "transpose"}
