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
// Threads   8 warps, each 32 x 32 of the tile and a quarter of every k-block: cu/include/split_loop.cuh.
// Shared    4 stages x (8192 + 16384) = 98304 bytes, dynamic; afterwards 4 x 32 x 72 floats of sums.
// Memory    workspace: a counter for each tile, zero before and after; from the next multiple of 128 bytes on, BM x BN
//           floats for each slice of each tile.
// Limit     By count, for 128 x 128 x 16384: a block reads 192 KiB of operands, the last one of a tile 128 KiB of sums
//           more, on its own. Before it can start, a chain of latencies: store, count, load.

#include "split_loop.cuh"

// Counts this block in, and says whether it is the last of SPLITS. PTX ISA, 'atom', .inc: counts from 0 to the limit,
// then starts at 0 again, so that the counter is left as it was found.
// .release: what the block wrote before is visible to whoever sees the count. .acquire: and the reverse.
__device__ __forceinline__ bool arrives_last(unsigned* counter) {
    __shared__ bool last;
    __syncthreads();  // the whole block has written before its one thread says so
    if (threadIdx.x == 0) {
        unsigned before;
        asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;"
                     : "=r"(before) : "l"(counter), "r"(SPLITS - 1) : "memory");
        last = before == SPLITS - 1;
    }
    __syncthreads();  // no thread reads before that thread has seen them all
    return last;
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
gemm(const Operand* __restrict__ A, const Operand* __restrict__ B, Output* __restrict__ C,
     int M, int N, int K, int lda, int ldb, int ldc, unsigned* workspace, Epilogue epilogue) {
    extern __shared__ float4 shared[];
    float* sums_in_shared = reinterpret_cast<float*>(shared);

    const int tiles_n = (N + BN - 1) / BN, tiles = (M + BM - 1) / BM * tiles_n;
    const int tile = blockIdx.x % tiles, slice = blockIdx.x / tiles;
    const int tile_m = tile / tiles_n * BM, tile_n = tile % tiles_n * BN;

    WarpSums sums;
    const Matrices operands = {A, B, M, N, K, lda, ldb};
    if (operands.wide())
        multiply_slice<true>(operands, tile_m, tile_n, slice_of_k(slice, K), shared_address(shared), sums);
    else
        multiply_slice<false>(operands, tile_m, tile_n, slice_of_k(slice, K), shared_address(shared), sums);
    lay_down(sums, sums_in_shared);

    if constexpr (SPLITS == 1) {
#pragma unroll
        for (int pass = 0; pass < FOURS_A_THREAD; ++pass) {
            const int four = four_of_thread(pass);
            finish(join_groups(sums_in_shared, four), C, M, N, ldc, tile_m, tile_n, four, epilogue);
        }
        return;
    }
    float4* parts = reinterpret_cast<float4*>(workspace + (tiles + 31) / 32 * 32);
    parts += (long long)tile * SPLITS * FOURS;
#pragma unroll
    for (int pass = 0; pass < FOURS_A_THREAD; ++pass)
        parts[slice * FOURS + four_of_thread(pass)] = join_groups(sums_in_shared, four_of_thread(pass));
    if (!arrives_last(workspace + tile)) return;

    // Two fours are added up before the first is stored: the loads of one need not wait for the stores of the other.
    constexpr int TOGETHER = FOURS_A_THREAD % 2 == 0 ? 2 : 1;
#pragma unroll 1
    for (int first = 0; first < FOURS_A_THREAD; first += TOGETHER) {
        float4 total[TOGETHER];
#pragma unroll
        for (int i = 0; i < TOGETHER; ++i) total[i] = join_slices(parts, four_of_thread(first + i));
#pragma unroll
        for (int i = 0; i < TOGETHER; ++i)
            finish(total[i], C, M, N, ldc, tile_m, tile_n, four_of_thread(first + i), epilogue);
    }
}
