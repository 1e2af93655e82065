// 16 split-K: C = A B on tensor cores for few tiles and a long K; the last block of a tile adds up.
//
// Computes  C[m][n] = epilogue(sum over k),  row-major, layouts NN, NT, TN, TT, any M, N, K, sums in fp32.
// Idea      15 waits until every block has come: a barrier, and a launch that promises that all blocks run at once.
//           Here nobody waits. A block writes the sums of its slice of K to the workspace and counts itself in; the one
//           that is counted last knows that the others' sums are there, and adds them all up. Which block that is
//           changes from run to run; the order of the additions, that of the slices, does not, nor do the bits.
//
// Tile      BM x BN x BK = 32 x 64 x 128 by default and SPLITS = 16 slices of K: a block for each pair of tile and
//           slice, the tiles of one slice side by side, so that blocks which run together share lines of A and B in L2.
//           A small tile: fewer slices are enough to give each SM a block, so that the last block has less to add up,
//           and there are more last blocks. The price is that A is read N / BN times and B M / BM times, from L2.
// Threads   8 warps, each 16 x 16 of the tile: cu/include/split_loop.cuh. A thread adds up what it would have of a
//           tile, so that the sums of all slices lie in its own place, SPLITS times 16 bytes for each piece.
// Shared    4 stages x (8192 + 16384) = 98304 bytes, dynamic: 3 k-blocks of the slice's 8 in flight, at K = 16384.
// Memory    workspace: a counter for each tile, zero before and after; from the next multiple of 128 bytes on, BM x BN
//           floats for each slice of each tile.
// Limit     By count, for 128 x 128 x 16384: a block reads 192 KiB of operands, the last one of a tile 128 KiB of sums
//           more, on its own. Before it can start, a chain of latencies: store, count, load.

#include "split_loop.cuh"

constexpr int ROW_PIECES = WN / MMA_N, PIECES = WM / MMA_M * ROW_PIECES;  // of a warp

// Loads of 16 bytes that a thread has in flight while it adds up, and the pieces that they are of.
constexpr int IN_FLIGHT = 32, FIT = IN_FLIGHT < SPLITS ? 1 : IN_FLIGHT / SPLITS, TOGETHER = FIT < PIECES ? FIT : PIECES;
static_assert(PIECES % TOGETHER == 0, "as many pieces each time");

// Counts this block in, and says whether it is the last of SPLITS. PTX ISA, 'atom', .inc: counts from 0 to the limit,
// then starts at 0 again, so that the counter is left as it was found.
// .release: what the block wrote before is visible to whoever sees the count. .acquire: and the reverse.
__device__ __forceinline__ bool arrives_last(unsigned* counter) {
    unsigned before = 0;
    __syncthreads();  // the whole block has written before its one thread says so
    if (threadIdx.x == 0)
        asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;"
                     : "=r"(before) : "l"(counter), "r"(SPLITS - 1) : "memory");
    return __syncthreads_or(before == SPLITS - 1);  // no thread reads before that thread has seen them all
}

// Adds up this thread's sums of TOGETHER pieces, over the slices in their order.
__device__ __forceinline__ void join_slices(const float4* from, float4 (&sum)[TOGETHER]) {
    float4 part[SPLITS][TOGETHER];
#pragma unroll
    for (int slice = 0; slice < SPLITS; ++slice)
#pragma unroll
        for (int i = 0; i < TOGETHER; ++i)  // past L1, which may hold what lay there before
            part[slice][i] = __ldcg(from + (slice * PIECES + i) * THREADS);
#pragma unroll
    for (int i = 0; i < TOGETHER; ++i) {
        sum[i] = part[0][i];
#pragma unroll
        for (int slice = 1; slice < SPLITS; ++slice) sum[i] = add(sum[i], part[slice][i]);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
gemm(const Operand* __restrict__ A, const Operand* __restrict__ B, Output* __restrict__ C,
     int M, int N, int K, int lda, int ldb, int ldc, unsigned* workspace, Epilogue epilogue) {
    extern __shared__ float4 shared[];

    const int slice = blockIdx.z, tile = blockIdx.y * gridDim.x + blockIdx.x, tiles = gridDim.x * gridDim.y;
    const TileOfC to = {C, M, N, ldc, (int)blockIdx.y * BM, (int)blockIdx.x * BN};
    const Matrices operands = {A, B, M, N, K, lda, ldb};
    WarpSums sums;
    multiply_slice(operands, to.m, to.n, slice_of_k(slice, K), shared_address(shared), sums);

    // [tile][slice][piece][thread], four sums each.
    float4* parts = reinterpret_cast<float4*>(workspace + (tiles + 31) / 32 * 32) + threadIdx.x;
    parts += (long long)tile * (SPLITS * PIECES * THREADS);
    float4* mine = parts + slice * (PIECES * THREADS);
#pragma unroll
    for (int piece = 0; piece < PIECES; ++piece) {
        const int i = piece / ROW_PIECES, j = piece % ROW_PIECES;
        const float4 sum = as_float4(sums.piece[i][j]);
        if constexpr (SPLITS == 1)
            to.store(warp_row() + i * MMA_M, warp_column() + j * MMA_N, sum, epilogue);
        else
            mine[piece * THREADS] = sum;
    }
    if constexpr (SPLITS > 1) {
        if (!arrives_last(workspace + tile)) return;
#pragma unroll 1
        for (int first = 0; first < PIECES; first += TOGETHER, parts += TOGETHER * THREADS) {
            float4 sum[TOGETHER];
            join_slices(parts, sum);
#pragma unroll
            for (int i = 0; i < TOGETHER; ++i) {
                const int m = (first + i) / ROW_PIECES * MMA_M, n = (first + i) % ROW_PIECES * MMA_N;
                to.store(warp_row() + m, warp_column() + n, sum[i], epilogue);
            }
        }
    }
}
