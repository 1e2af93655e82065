// 08 warp tile: C = A B in fp32, the fast one.
//
// Computes  C[m][n] = epilogue(sum over k of A[m][k] B[k][n]),  row-major, layout NN, any M, N, K.
// Idea      Each warp owns a square of C, 64 x 64, and each lane 16 x 8 of it: 24 words of shared memory for 128 FMAs,
//           and lanes of a warp ask for as few different words as a square allows. While a tile is multiplied the next
//           STAGES - 1 are in flight. What then limits is the register file (below), so the rest is about that.
//
// Tile      BM x BN x BK = 128 x 256 x 16 by default: 2 x 4 warps of WM x WN = 64 x 64. Blocks take tiles in groups of
//           8 rows, down each column of a group, so that blocks running at once share rows of A and columns of B in L2.
//           KGROUPS > 1: that many copies of the warps share the tile's k-blocks, each its own slice of every block,
//           and their sums are joined in shared memory at the end: more warps for problems with few tiles.
// Threads   Lane l of a warp: rows 4 (l % 4) + 16 i + {0..3}, columns 4 (l / 4) + 32 j + {0..3} of its square, i < 4
//           and j < 2. For the copies thread t takes A[t / 8 + ...][t % 8 + ...], 4 bytes each, transposed on their
//           way, and 16 bytes of rows of B.
// Shared    STAGES x As[BK][BM + 4]   As[stage][k][m], transposed; a warp copies 8 k of 4 rows, to 32 banks
//           STAGES x Bs[BK][BN]       Bs[stage][k][n]
//           128 x 256 x 16 and 3 stages: 25344 + 49152 = 74496 bytes, dynamic.
// Registers 128 sums and two sets of fragments, some 230 of 255. On sm_90 the register file behaves like two banks,
//           even and odd numbers, that give one operand a clock each; an operand that the instruction before kept by
//           .reuse is free. So an FFMA takes one clock where a is kept and b and the sum differ in parity, else two.
//           Hence
//           - the columns run forth and back (serpentine): where a changes, b is kept;
//           - the epilogue multiplies by an alpha that the compiler does not know. Without it the sums would be stored
//             from where they are, which forces each four of them, like each four of b, into neighbouring registers in
//             the same order of parity: sum and b then share a bank in every FFMA. Joining the groups' sums stores
//             single words for the same reason.
// Tails     cp.async writes zeros for what lies outside. Where fours of B, C or what is added are not aligned to 16
//           bytes, or N is not a multiple of 4, a second body of the same code copies, loads and stores 4 bytes.
// Limit     Issue slots: of the main loop's instructions on sm_90 nine in ten are FFMA, half of the others fragments;
//           and register banks, since ptxas leaves every sixteenth FFMA with two operands in one.

#include "cp_async.cuh"
#include "epilogue.cuh"
#include "fours.cuh"

constexpr int TM = 16, TN = 8;
constexpr int LANES_M = WM / TM, LANES_N = WN / TN;
static_assert(LANES_M == 4 && LANES_N == 8, "a warp is 4 x 8 lanes of 16 x 8 elements");
constexpr int WARPS_N = BN / WN;
constexpr int GROUP_THREADS = BM / WM * WARPS_N * 32;
constexpr int THREADS = GROUP_THREADS * KGROUPS;
constexpr int A_PITCH = BM + 4;
constexpr int A_STAGE = BK * A_PITCH, B_STAGE = BK * BN;
constexpr int K_SLICE = BK / KGROUPS;  // of a k-block, for one group of warps
constexpr int RASTER = 8;              // rows of tiles in a group
constexpr bool FIRST_BACKWARDS = KGROUPS == 1;  // of the serpentine's rows: whichever ptxas makes the faster code of
static_assert(K_SLICE % 2 == 0, "two sets of fragments take turns, also from one k-block to the next");
static_assert(BK % 8 == 0 && BM % (THREADS / 8) == 0, "whole passes of 8 k and THREADS / 8 rows over A");
static_assert(BK * BN % (4 * THREADS) == 0 && 4 * THREADS % BN == 0, "whole passes of whole rows over B");

struct Tile {
    int m, n;  // of C's first element
};

__device__ Tile tile_of_block(int block, int M, int N) {
    const int tiles_m = (M + BM - 1) / BM, tiles_n = (N + BN - 1) / BN;
    const int group = block / (RASTER * tiles_n), within = block % (RASTER * tiles_n);
    const int rows = min(RASTER, tiles_m - group * RASTER);
    return {(group * RASTER + within % rows) * BM, within / rows * BN};
}

// A thread's share of the copies of one k-block. They are started a few at a time, between the FMAs of another k-block,
// so each needs little besides itself: addresses are kept, and each row has a bound for k, 0 where it lies outside.
// What is outside reads nothing, whatever its address.
constexpr int A_PASSES = BM / (THREADS / 8), A_COPIES = A_PASSES * BK / 8;
constexpr int B_ROWS = 4 * THREADS / BN, B_COPIES = BK / B_ROWS;
constexpr int B_APART = BN / 4;
constexpr int COPIES = A_COPIES + B_COPIES;
constexpr int COPIES_A_STEP = 2;  // more at once, and the loads of fragments wait behind them
static_assert(COPIES <= COPIES_A_STEP * (K_SLICE - 1), "all are started before the last k of a block");

template <bool WIDE>
struct Copies {
    const float* a_from[A_PASSES];  // for each of this thread's rows of A, its element in the k-block
    int a_end[A_PASSES];            // K, seen from its place in the k-block
    const float* b_from[B_COPIES];  // for each of its rows of B in the k-block, the first of its four elements
    int b_end;
    int b_left;                     // columns of B from that element on
    int k_block;
    long long b_step;               // elements between k-blocks of B
    unsigned a_to, b_to;            // where they go in stage 0, shared

    __device__ __forceinline__ Copies(const float* A, const float* B, int M, int N, int K, int lda, int ldb, Tile tile,
                                      const float* As, const float* Bs) {
        const int a_k = threadIdx.x % 8, a_m = threadIdx.x / 8;
        // Four neighbours, or, word by word, four that are B_APART apart, so that neighbouring lanes copy neighbours.
        const int b_n = WIDE ? threadIdx.x * 4 % BN : threadIdx.x % B_APART, b_k = threadIdx.x / B_APART;
#pragma unroll
        for (int pass = 0; pass < A_PASSES; ++pass) {
            const int m = tile.m + a_m + pass * (THREADS / 8);
            a_from[pass] = A + (long long)m * lda + a_k;
            a_end[pass] = m < M ? K - a_k : 0;
        }
#pragma unroll
        for (int pass = 0; pass < B_COPIES; ++pass)
            b_from[pass] = B + (long long)(b_k + pass * B_ROWS) * ldb + tile.n + b_n;
        b_left = N - tile.n - b_n;
        b_end = b_left > 0 ? K - b_k : 0;
        b_step = (long long)BK * ldb;
        k_block = 0;
        a_to = shared_address(As + a_k * A_PITCH + a_m);
        b_to = shared_address(Bs + b_k * BN + b_n);
    }

    // Copy number `index`, a constant, into a stage.
    __device__ __forceinline__ void start(int index, int stage) {
        if (index < A_COPIES) {
            const int pass = index % A_PASSES, k = index / A_PASSES * 8;
            cp_async_4_if(k_block + k < a_end[pass],
                          a_to + 4 * (stage * A_STAGE + k * A_PITCH + pass * (THREADS / 8)), a_from[pass] + k);
            return;
        }
        const int pass = index - A_COPIES, k = pass * B_ROWS;
        const unsigned to = b_to + 4 * (stage * B_STAGE + k * BN);
        const bool inside = k_block + k < b_end;
        if (WIDE) {
            cp_async_16_if(inside, to, b_from[pass]);
        } else {
#pragma unroll
            for (int n = 0; n < BN; n += B_APART)
                cp_async_4_if(inside && n < b_left, to + 4 * n, b_from[pass] + n);
        }
    }

    // Goes on to the next k-block. Behind the last there are only zeros.
    __device__ __forceinline__ void finish() {
        cp_async_commit();
#pragma unroll
        for (int pass = 0; pass < A_PASSES; ++pass) a_from[pass] += BK;
#pragma unroll
        for (int pass = 0; pass < B_COPIES; ++pass) b_from[pass] += b_step;
        k_block += BK;
    }
};

// One k of a lane's operands: 16 elements of A, 8 of B.
__device__ __forceinline__ void load_fragments(const float* As, const float* Bs, float (&a)[TM], float (&b)[TN]) {
#pragma unroll
    for (int i = 0; i < TM; i += 4)
        *reinterpret_cast<float4*>(&a[i]) = *reinterpret_cast<const float4*>(As + i * LANES_M);
#pragma unroll
    for (int j = 0; j < TN; j += 4)
        *reinterpret_cast<float4*>(&b[j]) = *reinterpret_cast<const float4*>(Bs + j * LANES_N);
}

__device__ __forceinline__ void multiply(const float (&a)[TM], const float (&b)[TN], float (&acc)[TM][TN]) {
#pragma unroll
    for (int i = 0; i < TM; ++i)
#pragma unroll
        for (int step = 0; step < TN; ++step) {
            const int j = (i % 2 == 1) == FIRST_BACKWARDS ? step : TN - 1 - step;
            acc[i][j] = fmaf(a[i], b[j], acc[i][j]);
        }
}

// WIDE: 16 bytes at once of B, of C, and of what the epilogue adds.
template <bool WIDE>
__device__ __forceinline__ void product(const float* A, const float* B, float* C, int M, int N, int K, int lda, int ldb,
                                        int ldc, const Epilogue& epilogue, float* shared) {
    float* As = shared;
    float* Bs = shared + STAGES * A_STAGE;
    const int lane = threadIdx.x % 32, warp = threadIdx.x % GROUP_THREADS / 32, group = threadIdx.x / GROUP_THREADS;
    const int lane_m = warp / WARPS_N * WM + lane % LANES_M * 4, lane_n = warp % WARPS_N * WN + lane / LANES_M * 4;
    const Tile tile = tile_of_block(blockIdx.x, M, N);
    const int blocks = (K + BK - 1) / BK;
    constexpr bool FOURS = WIDE && Epilogue::ADDS;

    Copies<WIDE> copies(A, B, M, N, K, lda, ldb, tile, As, Bs);
    float a[2][TM], b[2][TN];
    auto load = [&](int stage, int k, int set) {
        k += group * K_SLICE;
        load_fragments(As + stage * A_STAGE + k * A_PITCH + lane_m, Bs + stage * B_STAGE + k * BN + lane_n,
                       a[set], b[set]);
    };

#pragma unroll
    for (int stage = 0; stage < STAGES - 1; ++stage) {
#pragma unroll
        for (int index = 0; index < COPIES; ++index) copies.start(index, stage);
        copies.finish();
    }
    cp_async_wait<STAGES - 2>();
    __syncthreads();
    load(0, 0, 0);

    float acc[TM][TN] = {};
    int stage = 0, free_stage = STAGES - 1;
    for (int block = 0; block < blocks; ++block) {
        const int next_stage = stage + 1 == STAGES ? 0 : stage + 1;
#pragma unroll
        for (int k = 0; k < K_SLICE; ++k) {
            // The fragments of the next k, or of the next block's first, while this k is multiplied.
            if (k + 1 < K_SLICE) {
#pragma unroll
                for (int index = k * COPIES_A_STEP; index < min((k + 1) * COPIES_A_STEP, COPIES); ++index)
                    copies.start(index, free_stage);
                load(stage, k + 1, (k + 1) % 2);
            } else {
                copies.finish();
                cp_async_wait<STAGES - 2>();
                __syncthreads();  // the next block is whole; everyone has read the last of this one
                load(next_stage, 0, (k + 1) % 2);
            }
            multiply(a[k % 2], b[k % 2], acc);
        }
        free_stage = stage;
        stage = next_stage;
    }

    auto row_of_c = [&](int i) { return tile.m + lane_m + i / 4 * 4 * LANES_M + i % 4; };
    auto column_of_c = [&](int j) { return tile.n + lane_n + j * LANES_N; };
    auto load_row = [&](int i, float4 (&addends)[TN / 4]) {
        if constexpr (FOURS) {
            const int m = row_of_c(i);
#pragma unroll
            for (int j = 0; j < TN; j += 4)
                addends[j / 4] = m < M && column_of_c(j) < N
                                     ? *reinterpret_cast<const float4*>(epilogue.addends(m) + column_of_c(j))
                                     : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        }
    };
    auto finish_four = [&](int m, int n, const float* sums, float4 addend) {
        if (m >= M) return;
        float value[4];
        if constexpr (FOURS) {
            value[0] = epilogue.finish(sums[0], addend.x), value[1] = epilogue.finish(sums[1], addend.y);
            value[2] = epilogue.finish(sums[2], addend.z), value[3] = epilogue.finish(sums[3], addend.w);
        } else {
#pragma unroll
            for (int l = 0; l < 4; ++l) value[l] = n + l < N ? epilogue(sums[l], m, n + l) : 0.0f;
        }
        store_four(C + (long long)m * ldc, n, N, WIDE, make_float4(value[0], value[1], value[2], value[3]));
    };
    auto finish_row = [&](int i, const float (&sums)[TN], const float4 (&addends)[TN / 4]) {
        if (!Epilogue::ADDS && row_of_c(i) >= M) return;  // otherwise the warp stays together
#pragma unroll
        for (int j = 0; j < TN; j += 4) {
            finish_four(row_of_c(i), column_of_c(j), &sums[j], addends[j / 4]);
            if (Epilogue::ADDS) __syncwarp();  // nothing of later rows is loaded yet: registers are short
        }
    };
    if (KGROUPS == 1) {
        constexpr int AT_ONCE = FOURS ? 8 : 1;  // rows whose addends are under way together, where the fragments were
#pragma unroll
        for (int i = 0; i < TM; i += AT_ONCE) {
            float4 addends[AT_ONCE][TN / 4];
#pragma unroll
            for (int row = 0; row < AT_ONCE; ++row) load_row(i + row, addends[row]);
#pragma unroll
            for (int row = 0; row < AT_ONCE; ++row) finish_row(i + row, acc[i + row], addends[row]);
        }
        return;
    }
    // Every group lays half of its rows down in shared memory, and finishes its share of them: the sum over all groups.
    // Word by word: stores of four would order the sums as the epilogue must not (above).
    constexpr int HALF = TM / 2, SHARE = HALF / KGROUPS;
    float* parts = shared + threadIdx.x % GROUP_THREADS;
    cp_async_wait<0>();
#pragma unroll
    for (int half = 0; half < TM; half += HALF) {
        __syncthreads();  // nobody needs what lies there any more
#pragma unroll
        for (int i = 0; i < HALF * TN; ++i)
            parts[(group * HALF * TN + i) * GROUP_THREADS] = acc[half + i / TN][i % TN];
        __syncthreads();  // all parts are there
#pragma unroll
        for (int turn = 0; turn < SHARE; ++turn) {
            const int row = group * SHARE + turn;
            float sums[TN] = {};
#pragma unroll
            for (int from = 0; from < KGROUPS; ++from)
#pragma unroll
                for (int j = 0; j < TN; ++j) sums[j] += parts[((from * HALF + row) * TN + j) * GROUP_THREADS];
            float4 addends[TN / 4];
            load_row(half + row, addends);
            finish_row(half + row, sums, addends);
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
gemm(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C,
     int M, int N, int K, int lda, int ldb, int ldc, Epilogue epilogue) {
    extern __shared__ float4 shared[];
    float* memory = reinterpret_cast<float*>(shared);
    if (aligned_to_16(B, ldb) && aligned_to_16(C, ldc) && epilogue.aligned_to_16() && N % 4 == 0)
        product<true>(A, B, C, M, N, K, lda, ldb, ldc, epilogue, memory);
    else
        product<false>(A, B, C, M, N, K, lda, ldb, ldc, epilogue, memory);
}
