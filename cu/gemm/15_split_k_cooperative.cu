// 15 split-K, cooperative: C = A B on tensor cores for few tiles and a long K; all blocks add up together.
//
// Computes  C[m][n] = epilogue(sum over k),  row-major, layouts NN, NT, TN, TT, any M, N, K, sums in fp32.
// Idea      A product with few tiles leaves most SMs idle, however long its K. So K is cut into SPLITS slices, a block
//           for each slice of each tile. Each writes its sums to the workspace; then they are added up, in a fixed
//           order, so that the bits are the same in every run. That needs a barrier among the blocks of a tile, and a
//           barrier needs a cooperative launch: a block that waited for one that had not started, and could not, as it
//           held the SM, would wait for ever. After the barrier every block adds up its share of the tile.
//
// Tile      BM x BN x BK = 64 x 64 x 64 by default and SPLITS = 32. As many blocks as run at once, one an SM, take
//           gridDim.x / SPLITS tiles in one round, and need several rounds where there are more.
// Threads   8 warps, each 32 x 16 of the tile: cu/include/split_loop.cuh. Each adds up 4 slices of the share.
// Shared    9 stages x (8192 + 8192) = 147456 bytes, dynamic: 8 k-blocks in flight, a whole slice of K = 16384.
// Memory    workspace: a counter for each tile of a round; from the next multiple of 128 bytes on, the sums, BM x BN
//           floats for each block, twice where there are several rounds: one that has left a barrier may write its next
//           sums while others still read.
// Limit     By count, for 128 x 128 x 16384: a block reads 128 KiB of operands, and writes and reads 16 KiB of sums.
//           Everyone waits for the slowest block of the tile, and then for the barrier's own way to L2 and back. Rung
//           16 has no barrier.

#include "split_loop.cuh"

// A unit is a piece of the tile, numbered along its rows. Unit u is in share u % SPLITS, which the block of slice
// u % SPLITS adds up: so every block reads BM x BN sums.
constexpr int ROW_UNITS = BN / MMA_N, UNITS = BM / MMA_M * ROW_UNITS;
constexpr int UNITS_A_SHARE = (UNITS + SPLITS - 1) / SPLITS;

// A share's units go round the block's warps. Where there are fewer units than warps, JOINED warps have SLICES_A_WARP
// slices each of one, and the first of these adds up what the others have.
constexpr int TO_JOIN = UNITS_A_SHARE < WARPS ? WARPS / UNITS_A_SHARE : 1, JOINED = TO_JOIN < SPLITS ? TO_JOIN : SPLITS;
static_assert(SPLITS % JOINED == 0 && WARPS % JOINED == 0, "as many slices for every warp");
constexpr int SLICES_A_WARP = SPLITS / JOINED, UNITS_A_ROUND = WARPS / JOINED;

// The number of the unit that holds piece i, j of this warp.
__device__ __forceinline__ int unit_of_piece(int i, int j) {
    const int warp = threadIdx.x / 32;
    return (warp / WARPS_N * (WM / MMA_M) + i) * ROW_UNITS + warp % WARPS_N * (WN / MMA_N) + j;
}

// Where a lane's four sums of a unit lie among the tile's: a unit's slices side by side, so that whoever adds it up
// reads SPLITS x 512 bytes in a row.
__device__ __forceinline__ int place_in_tile(int unit, int slice) {
    return (unit * SPLITS + slice) * 32 + threadIdx.x % 32;
}

// Adds up a share over the slices and finishes it. The order is fixed, so that the bits are the same in every run: a
// warp's slices one after another, then the warps.
__device__ __forceinline__ void add_up(int share, const float4* of_tile, const TileOfC& to, const Epilogue& epilogue) {
    __shared__ float4 joined[WARPS][32];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, mine = warp % JOINED;
#pragma unroll 1
    for (int first = 0; first < UNITS_A_SHARE; first += UNITS_A_ROUND) {
        const int unit = share + (first + warp / JOINED) * SPLITS;
        const bool there = first + warp / JOINED < UNITS_A_SHARE && unit < UNITS;
        float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (there) {
            float4 part[SLICES_A_WARP];
            const float4* from = of_tile + place_in_tile(unit, mine * SLICES_A_WARP);
#pragma unroll
            for (int slice = 0; slice < SLICES_A_WARP; ++slice)  // past L1, which may hold what lay there before
                part[slice] = __ldcg(from + slice * 32);
#pragma unroll
            for (int slice = 0; slice < SLICES_A_WARP; ++slice) sum = add(sum, part[slice]);
        }
        if constexpr (JOINED > 1) {
            joined[warp][lane] = sum;
            __syncthreads();  // all warps' sums are there
            if (mine == 0)
#pragma unroll
                for (int other = 1; other < JOINED; ++other) sum = add(sum, joined[warp + other][lane]);
        }
        if (there && mine == 0) to.store(unit / ROW_UNITS * MMA_M, unit % ROW_UNITS * MMA_N, sum, epilogue);
        if constexpr (JOINED > 1) __syncthreads();  // they may be written again
    }
}

// The blocks of a tile meet. Bit 31 of the counter turns when all have come: slice 0 adds 2^31 less one for each other
// slice, the others 1, in all 2^31. What lies below is then zero again.
// .release: what a block wrote before is visible to who has seen its arrival, by .acquire. PTX ISA, 'Memory Consistency
// Model'.
__device__ __forceinline__ void barrier_of_tile(unsigned* counter, int slice) {
    __syncthreads();  // the whole block has written before its one thread says so
    if (threadIdx.x == 0) {
        const unsigned share = slice == 0 ? 0x80000000u - (SPLITS - 1) : 1;
        unsigned before, now;
        asm volatile("atom.release.gpu.global.add.u32 %0, [%1], %2;"
                     : "=r"(before) : "l"(counter), "r"(share) : "memory");
        now = before + share;
        while (((before ^ now) & 0x80000000u) == 0)
            asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(counter) : "memory");
    }
    __syncthreads();  // no thread goes on before that thread has seen them all
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
gemm(const Operand* __restrict__ A, const Operand* __restrict__ B, Output* __restrict__ C,
     int M, int N, int K, int lda, int ldb, int ldc, unsigned* workspace, Epilogue epilogue) {
    extern __shared__ float4 shared[];

    const int tiles_n = (N + BN - 1) / BN, tiles = (M + BM - 1) / BM * tiles_n;
    const int at_once = gridDim.x / SPLITS;  // tiles of a round; those of one slice side by side share lines in L2
    const int slice = blockIdx.x / at_once, in_round = blockIdx.x % at_once;
    const Matrices operands = {A, B, M, N, K, lda, ldb};
    const long long fours = (long long)UNITS * 32;
    float4* parts = reinterpret_cast<float4*>(workspace + (at_once + 31) / 32 * 32) + in_round * SPLITS * fours;

    int half = 0;
#pragma unroll 1
    for (int tile = in_round; tile < tiles; tile += at_once, half ^= 1) {
        const TileOfC to = {C, M, N, ldc, tile / tiles_n * BM, tile % tiles_n * BN};
        float4* of_tile = parts + half * (long long)at_once * SPLITS * fours;
        WarpSums sums;
        multiply_slice(operands, to.m, to.n, slice_of_k(slice, K), shared_address(shared), sums);
#pragma unroll
        for (int i = 0; i < WM / MMA_M; ++i)
#pragma unroll
            for (int j = 0; j < WN / MMA_N; ++j) {
                const float4 sum = as_float4(sums.piece[i][j]);
                if constexpr (SPLITS == 1)
                    to.store(warp_row() + i * MMA_M, warp_column() + j * MMA_N, sum, epilogue);
                else
                    of_tile[place_in_tile(unit_of_piece(i, j), slice)] = sum;
            }
        if constexpr (SPLITS > 1) {
            barrier_of_tile(workspace + in_round, slice);
            add_up(slice, of_tile, to, epilogue);
        } else {
            __syncthreads();  // the ring may be filled again
        }
    }
}
