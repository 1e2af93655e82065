// 16 split-K: C = A B on tensor cores for few tiles and a long K; whoever can wait safely waits, for the sums alone.
//
// Computes  C[m][n] = epilogue(sum over k),  row-major, layouts NN, NT, TN, TT, any M, N, K, sums in fp32.
// Idea      15 waits at a barrier, and needs a launch that promises that all blocks run at once. Its barrier is a chain
//           of trips to L2: sums out, when they are there a count, then a look at the count, then sums in.
//           Here sums are their own message. Where they will lie in the workspace there are zeros; a block adds up its
//           share of the tile as soon as it finds something else, and puts the zeros back. Two trips: out and in.
//           A sum that is zero is written as -0, whose bits are not zero, and to which nothing adds.
//           No promise is needed: a block waits only if all blocks of its tile have started, for a block that has
//           started also ends. It counts itself in when it starts, and looks when it is nearly done. Where some have
//           not started, it goes and leaves its share; whoever stays, and one does, takes what has been left. Where
//           all blocks of the grid run at once nobody goes.
//           Who adds up a share may change from run to run; in which order does not, nor do the bits.
//
// Tile      BM x BN x BK = 64 x 64 x 64 by default and SPLITS = 32 slices of K: a block for each pair of tile and
//           slice, the tiles of one slice side by side, so that blocks which run together share lines of A and B in L2.
// Threads   8 warps, each 32 x 16 of the tile: cu/include/split_loop.cuh. Each adds up 4 slices of the share.
// Shared    9 stages x (8192 + 8192) = 147456 bytes, dynamic: 8 k-blocks in flight, a whole slice of K = 16384.
// Memory    workspace, zero before and after: 8 bytes for each tile, the roll; from the next multiple of 128 bytes on,
//           BM x BN floats for each slice of each tile.
// Limit     By count, for 128 x 128 x 16384: a block reads 128 KiB of operands, and writes and reads 16 KiB of sums.

#include "split_loop.cuh"

// The roll of a tile. Upper half: how many of its SPLITS blocks have started, slice 0 counting 1 - SPLITS: so it is
// zero as soon as all have, and left as it was found. Lower half: a bit for each that has gone and left its share.
// All orders that matter are among operations on this one word, hence .relaxed. PTX ISA, 'Memory Consistency Model'.
struct Roll {
    static_assert(SPLITS <= 32, "a bit of a word for each slice");
    unsigned long long* word;
    int slice;

    static __device__ __forceinline__ bool is_full(unsigned long long value) { return value >> 32 == 0; }

    // Counts this block in. Nothing comes back that would have to be waited for.
    __device__ __forceinline__ void start() const {
        const unsigned long long mine = (unsigned long long)(slice == 0 ? 1 - SPLITS : 1) << 32;
        asm volatile("red.relaxed.gpu.global.add.u64 [%0], %1;" ::"l"(word), "l"(mine) : "memory");
    }

    // The word, if `wanted`, else what is there already.
    __device__ __forceinline__ void look(bool wanted, unsigned long long& value) const {
        asm volatile(
            "{\n\t"
            ".reg .pred wanted;\n\t"
            "setp.ne.s32 wanted, %2, 0;\n\t"
            "@wanted ld.relaxed.gpu.global.u64 %0, [%1];\n\t"
            "}" : "+l"(value) : "l"(word), "r"((int)wanted) : "memory");
    }

    // Those of `shares` that are left, and were not taken by another.
    __device__ __forceinline__ unsigned take(unsigned shares) const {
        unsigned long long before;
        asm volatile("atom.relaxed.gpu.global.and.b64 %0, [%1], %2;"
                     : "=l"(before) : "l"(word), "l"(~(unsigned long long)shares) : "memory");
        return (unsigned)before & shares;
    }

    // Leaves this block's share. The word before.
    __device__ __forceinline__ unsigned long long leave() const {
        unsigned long long before;
        asm volatile("atom.relaxed.gpu.global.or.b64 %0, [%1], %2;"
                     : "=l"(before) : "l"(word), "l"(1ull << slice) : "memory");
        return before;
    }

    // The shares that this block adds up, a bit for each, as far as it has `seen`. What was left before all had started
    // is seen by everyone who stays, the last to start among them.
    __device__ __forceinline__ unsigned shares(unsigned long long seen) const {
        const unsigned mine = 1u << slice;
        if (is_full(seen)) return (unsigned)seen == 0 ? mine : mine | take((unsigned)seen);
        const unsigned long long before = leave();
        return is_full(before) ? take((unsigned)before | mine) : 0;  // full: all have started after all
    }
};

// A sum as it is handed on: its bits are not zero.
__device__ __forceinline__ float marked(float x) { return __float_as_uint(x) == 0 ? -0.0f : x; }

// Each of the four is written whole, in no order, hence .relaxed for each and not one for all.
__device__ __forceinline__ void hand_on(float4* to, float4 x) {
    asm volatile("st.relaxed.gpu.global.v4.f32 [%0], {%1, %2, %3, %4};"
                 ::"l"(to), "f"(marked(x.x)), "f"(marked(x.y)), "f"(marked(x.z)), "f"(marked(x.w)) : "memory");
}

__device__ __forceinline__ float4 look_at(const float4* from) {
    float4 x;
    asm volatile("ld.relaxed.gpu.global.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w) : "l"(from) : "memory");
    return x;
}

__device__ __forceinline__ bool has_come(float4 x) {
    return (__float_as_uint(x.x) != 0) & (__float_as_uint(x.y) != 0) & (__float_as_uint(x.z) != 0) &
           (__float_as_uint(x.w) != 0);
}

__device__ __forceinline__ bool have_come(const float4 (&part)[SLICES_A_WARP]) {
    bool all = true;
#pragma unroll
    for (int slice = 0; slice < SLICES_A_WARP; ++slice) all &= has_come(part[slice]);
    return all;
}

// Waits for the sums of SLICES_A_WARP slices, and puts the zeros back.
__device__ __forceinline__ void take(float4 (&part)[SLICES_A_WARP], float4* from) {
#pragma unroll
    for (int slice = 0; slice < SLICES_A_WARP; ++slice) part[slice] = look_at(from + slice * 32);
    while (!have_come(part))
#pragma unroll
        for (int slice = 0; slice < SLICES_A_WARP; ++slice)
            if (!has_come(part[slice])) part[slice] = look_at(from + slice * 32);
#pragma unroll
    for (int slice = 0; slice < SLICES_A_WARP; ++slice) from[slice * 32] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
gemm(const Operand* __restrict__ A, const Operand* __restrict__ B, Output* __restrict__ C,
     int M, int N, int K, int lda, int ldb, int ldc, unsigned long long* workspace, Epilogue epilogue) {
    extern __shared__ float4 shared[];
    __shared__ unsigned shares_of_block;

    const int slice = blockIdx.z, tile = blockIdx.y * gridDim.x + blockIdx.x, tiles = gridDim.x * gridDim.y;
    const TileOfC to = {C, M, N, ldc, (int)blockIdx.y * BM, (int)blockIdx.x * BN};
    const Matrices operands = {A, B, M, N, K, lda, ldb};
    const Roll roll = {workspace + tile, slice};
    const bool clerk = SPLITS > 1 && threadIdx.x == 0;

    if (clerk) roll.start();
    unsigned long long seen = 1ull << 32;  // one has started
    WarpSums sums;
    multiply_slice(operands, to.m, to.n, slice_of_k(slice, K), shared_address(shared), sums, [&] {
        if constexpr (SPLITS > 1) roll.look(clerk, seen);  // it comes while the last k-block is multiplied
    });

    float4* of_tile = reinterpret_cast<float4*>(workspace + (tiles + 15) / 16 * 16);
    of_tile += (long long)tile * SPLITS * UNITS * 32;
#pragma unroll
    for (int i = 0; i < WM / MMA_M; ++i)
#pragma unroll
        for (int j = 0; j < WN / MMA_N; ++j) {
            const float4 sum = as_float4(sums.piece[i][j]);
            if constexpr (SPLITS == 1)
                to.store(unit_of_piece(i, j), sum, epilogue);
            else
                hand_on(of_tile + place_in_tile(unit_of_piece(i, j), slice), sum);
        }
    if constexpr (SPLITS > 1) {
        if (clerk) shares_of_block = roll.shares(seen);
        __syncthreads();
#pragma unroll 1
        for (unsigned shares = shares_of_block; shares != 0; shares &= shares - 1)
            add_up(__ffs(shares) - 1, of_tile, to, epilogue, take);
    }
}
