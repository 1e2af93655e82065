// 13 multistage: C = A B on Ampere's tensor cores, several tiles on their way while one is multiplied.
//
// Computes  C[m][n] = sum over k of A[m][k] B[k][n],  layouts NN, NT, TN, TT; TF32 and int8 in NT; any M, N, K.
// Idea      12 waits for every tile before it multiplies it. Here cp.async fills a ring of STAGES tiles: a block
//           starts the copies of k-block p + STAGES - 1, then multiplies block p, which was asked for STAGES - 1 blocks
//           ago. The ring needs more than the 48 KB that a kernel has without asking: dynamic shared memory.
//
// Tile      BM x BN x BK = 128 x 128 x 64 by default, 2 x 4 warps of WM x WN = 64 x 32. BK is 32 for TF32 and 128 for
//           int8: 128 bytes of k for every type. Blocks take tiles in groups of 8 rows, for L2.
// Threads   A warp's sums are 4 x 4 of mma's 16 x 8. Lane l holds rows l / 4 and l / 4 + 8 and columns 2 (l % 4) and
//           2 (l % 4) + 1 of each, and stores them from there.
// Shared    STAGES x (A tile, B tile), 98304 bytes by default.
//           A tile     A[BM][BK] where A's rows run along k, else A[BK][BM]; B tile likewise. Chunks of 16 bytes,
//                      swizzled: 8 lanes of cp.async or ldmatrix meet 8 different groups of banks. Where a row is one
//                      k, ldmatrix transposes; it does that to 16-bit elements only, hence NT alone for the others.
// Pipeline  One barrier a k-block: behind it block p is whole, and the stage of block p - 1 is free to be filled.
// Tails     The last k-block, zeros where it ends early, is multiplied first, so that the loop tests rows or columns
//           alone. Where rows of A or B do not begin at multiples of 16 bytes a second body copies element by element.
// Limit     Every k-step waits for its own fragments, and two warps on a tensor core's quarter of the SM do not always
//           hide that. C is stored 4 bytes a lane. Both are 14's.

#include "mma.cuh"
#include "operand_tile.cuh"
#include "tile_order.cuh"

constexpr int WARPS_N = BN / WN, THREADS = BM / WM * WARPS_N * 32;
constexpr int PIECES_M = WM / 16, PIECES_N = WN / 16, COLUMNS = WN / MMA_N;
constexpr int STEPS = BK / MMA_K;
constexpr int RASTER = 8;  // rows of tiles in a group
typedef OperandTile<BM, BK, !A_TRANSPOSED> TileA;
typedef OperandTile<BN, BK, B_TRANSPOSED> TileB;
constexpr unsigned STAGE_BYTES = TileA::BYTES + TileB::BYTES, RING_BYTES = STAGES * STAGE_BYTES;
static_assert(BM % WM == 0 && BN % WN == 0 && 64 % WM == 0 && WM % 16 == 0 && 64 % WN == 0 && WN % 16 == 0,
              "whole warps, each within 128 bytes of a row");
static_assert(BK % MMA_K == 0, "whole k-steps");
static_assert(STAGES >= 2, "one stage is multiplied while others are on their way");

// C[m][n] and C[m][n + 1], `pair` where the two are one aligned word or two.
__device__ __forceinline__ void store_pair(Output* C, int ldc, int m, int n, int M, int N, bool pair, Sum first,
                                           Sum second) {
    if (m >= M || n >= N) return;
    Output* to = C + (long long)m * ldc + n;
    if (pair && n + 1 < N) {
        struct alignas(2 * sizeof(Output)) Pair {
            Output first, second;
        };
        *reinterpret_cast<Pair*>(to) = {to_output(first), to_output(second)};
        return;
    }
    to[0] = to_output(first);
    if (n + 1 < N) to[1] = to_output(second);
}

template <bool ALIGNED>
__device__ __forceinline__ void product(const Operand* A, const Operand* B, Output* C, int M, int N, int K, int lda,
                                        int ldb, int ldc, char* shared) {
    const TileIndex tile = tile_of_block(blockIdx.x, (M + BM - 1) / BM, (N + BN - 1) / BN, RASTER);
    const int tile_m = tile.m * BM, tile_n = tile.n * BN;
    const int warp = threadIdx.x / 32, warp_m = warp / WARPS_N * WM, warp_n = warp % WARPS_N * WN;
    const int blocks = (K + BK - 1) / BK, k_last = (blocks - 1) * BK;
    const unsigned ring = shared_address(shared);

    TileCopies<TileA, THREADS, ALIGNED> a_copies(A, lda, tile_m, M, k_last, ring);
    TileCopies<TileB, THREADS, ALIGNED> b_copies(B, ldb, tile_n, N, k_last, ring + TileA::BYTES);
    int copied = 1;
    auto copy_block = [&](unsigned stage) {
        if (copied++ < blocks) {
#pragma unroll
            for (int pass = 0; pass < a_copies.PASSES; ++pass) a_copies.start(pass, stage);
#pragma unroll
            for (int pass = 0; pass < b_copies.PASSES; ++pass) b_copies.start(pass, stage);
        }
        cp_async_commit();  // behind the last block empty groups, so that the count below stays right
    };
    a_copies.copy_short(K - k_last, 0);
    b_copies.copy_short(K - k_last, 0);
    cp_async_commit();
    a_copies.back(blocks * BK, lda);
    b_copies.back(blocks * BK, ldb);
#pragma unroll
    for (int stage = 1; stage < STAGES - 1; ++stage) copy_block(stage * STAGE_BYTES);

    const unsigned lane_a = ring + lane_row_of_a<TileA>(warp_m);
    const unsigned lane_b = ring + TileA::BYTES + lane_row_of_b<TileB>(warp_n);
    Sums acc[PIECES_M][COLUMNS];
    unsigned reading = 0, writing = (STAGES - 1) * STAGE_BYTES;
    for (int block = 0; block < blocks; ++block) {
        cp_async_wait<STAGES - 2>();
        __syncthreads();  // this block is whole, and everyone is done with the one before it
        copy_block(writing);
#pragma unroll
        for (int step = 0; step < STEPS; ++step) {
            unsigned a[PIECES_M][4], b[PIECES_N][4];
#pragma unroll
            for (int i = 0; i < PIECES_M; ++i) load_fragment<TileA>(a[i], lane_a + reading, i, step);
#pragma unroll
            for (int j = 0; j < PIECES_N; ++j) load_fragment<TileB>(b[j], lane_b + reading, j, step);
#pragma unroll
            for (int i = 0; i < PIECES_M; ++i)
#pragma unroll
                for (int j = 0; j < COLUMNS; ++j)
                    mma(acc[i][j], a[i], {b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]});
        }
        writing = reading;
        reading = reading + STAGE_BYTES == RING_BYTES ? 0 : reading + STAGE_BYTES;
    }

    const int lane = threadIdx.x % 32;
    const bool pairs = (reinterpret_cast<unsigned long long>(C) | ldc * sizeof(Output)) % (2 * sizeof(Output)) == 0;
#pragma unroll
    for (int i = 0; i < PIECES_M; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half)
#pragma unroll
            for (int j = 0; j < COLUMNS; ++j) {
                const int m = tile_m + warp_m + 16 * i + 8 * half + lane / 4;
                const int n = tile_n + warp_n + 8 * j + lane % 4 * 2;
                store_pair(C, ldc, m, n, M, N, pairs, acc[i][j].at(2 * half), acc[i][j].at(2 * half + 1));
            }
}

extern "C" __global__ void __launch_bounds__(THREADS)
gemm(const Operand* __restrict__ A, const Operand* __restrict__ B, Output* __restrict__ C,
     int M, int N, int K, int lda, int ldb, int ldc) {
    extern __shared__ __align__(256) char shared[];
    if (rows_in_chunks(A, lda, sizeof(Operand)) && rows_in_chunks(B, ldb, sizeof(Operand)))
        product<true>(A, B, C, M, N, K, lda, ldb, ldc, shared);
    else
        product<false>(A, B, C, M, N, K, lda, ldb, ldc, shared);
}
