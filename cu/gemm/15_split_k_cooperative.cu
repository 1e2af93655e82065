// 15 split-K, cooperative: C = A B on tensor cores for few tiles and a long K; all blocks add up together.
//
// Computes  C[m][n] = epilogue(sum over k),  row-major, layouts NN, NT, TN, TT, any M, N, K, sums in fp32.
// Idea      A product with few tiles leaves most SMs idle, however long its K. So K is cut into SPLITS slices, a block
//           for each slice of each tile. Each writes its sums to the workspace; then they are added up, in the order of
//           the slices, so that the bits are the same in every run. That needs a barrier among all blocks of the grid,
//           and a barrier needs a cooperative launch: a block that waited for one that had not started, and could not,
//           as it held the SM, would wait for ever. After the barrier every block adds up its share of C.
//
// Tile      BM x BN x BK = 64 x 64 x 64 by default and SPLITS = 32. As many blocks as run at once, one an SM, take
//           gridDim.x / SPLITS tiles in one round, and need several rounds where there are more.
// Threads   4 warps, each 32 x 32 of the tile: cu/include/split_loop.cuh. Sums are added up by warps: a warp takes 32
//           fours, and they go round the blocks, so that all SMs read.
// Shared    6 stages x (8192 + 8192) = 98304 bytes, dynamic; afterwards 64 x 72 floats of sums.
// Memory    workspace: bytes 0 .. 3 the barrier; from byte 128 on, the sums, BM x BN floats for each block, twice where
//           there are several rounds: one that has left a barrier may write its next sums while others still read.
// Limit     By count, for 128 x 128 x 16384: a block reads 128 KiB of operands and 16 KiB of sums. Everyone waits for
//           the slowest block, and then for the barrier's own way to L2 and back. Rung 16 does without waiting.

#include "split_loop.cuh"

// Every block of the grid meets. Bit 31 of the counter turns when all have come: block 0 adds 2^31 less one for each
// other block, the others 1, in all 2^31. What lies below is then zero again, whatever the grid of the next launch.
// .release: what a block wrote before is visible to who has seen its arrival, by .acquire. PTX ISA, 'Memory Consistency
// Model'.
__device__ __forceinline__ void grid_wide_barrier(unsigned* counter) {
    __syncthreads();  // the whole block has written before its one thread says so
    if (threadIdx.x == 0) {
        const unsigned share = blockIdx.x == 0 ? 0x80000000u - (gridDim.x - 1) : 1;
        unsigned before, now;
        asm volatile("atom.release.gpu.global.add.u32 %0, [%1], %2;"
                     : "=r"(before) : "l"(counter), "r"(share) : "memory");
        do {
            asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(counter) : "memory");
        } while (((before ^ now) & 0x80000000u) == 0);
    }
    __syncthreads();  // no thread goes on before that thread has seen them all
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
gemm(const Operand* __restrict__ A, const Operand* __restrict__ B, Output* __restrict__ C,
     int M, int N, int K, int lda, int ldb, int ldc, unsigned* workspace, Epilogue epilogue) {
    extern __shared__ float4 shared[];
    float* sums_in_shared = reinterpret_cast<float*>(shared);

    const int tiles_n = (N + BN - 1) / BN, tiles = (M + BM - 1) / BM * tiles_n;
    const int at_once = gridDim.x / SPLITS;  // tiles of a round; those of one slice side by side share lines in L2
    const int slice = blockIdx.x / at_once;
    const Matrices operands = {A, B, M, N, K, lda, ldb};
    float4* half = reinterpret_cast<float4*>(workspace + 32);

    for (int first = 0; first < tiles; first += at_once) {
        const int tile = first + blockIdx.x % at_once;
        float4* parts = half + (long long)(first / at_once % 2) * gridDim.x * FOURS;
        if (tile < tiles) {
            const int tile_m = tile / tiles_n * BM, tile_n = tile % tiles_n * BN;
            WarpSums sums;
            if (operands.wide())
                multiply_slice<true>(operands, tile_m, tile_n, slice_of_k(slice, K), shared_address(shared), sums);
            else
                multiply_slice<false>(operands, tile_m, tile_n, slice_of_k(slice, K), shared_address(shared), sums);
            lay_down(sums, sums_in_shared);
#pragma unroll
            for (int pass = 0; pass < FOURS_A_THREAD; ++pass) {
                const int four = four_of_thread(pass);
                const float4 sum = join_groups(sums_in_shared, four);
                if constexpr (SPLITS > 1)
                    parts[((tile - first) * SPLITS + slice) * FOURS + four] = sum;
                else
                    finish(sum, C, M, N, ldc, tile_m, tile_n, four, epilogue);
            }
            __syncthreads();  // the ring may be filled again
        }
        if constexpr (SPLITS > 1) {
            grid_wide_barrier(workspace);
            const int warps = gridDim.x * (THREADS / 32), warp = threadIdx.x / 32 * gridDim.x + blockIdx.x;
            const int all = min(at_once, tiles - first) * FOURS;
            for (int item = warp * 32 + threadIdx.x % 32; item < all; item += warps * 32) {
                const int joined = first + item / FOURS;
                finish(join_slices(parts + (long long)(item / FOURS) * SPLITS * FOURS, item % FOURS), C, M, N, ldc,
                       joined / tiles_n * BM, joined % tiles_n * BN, item % FOURS, epilogue);
            }
        }
    }
}
