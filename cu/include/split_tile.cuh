// A tile of C whose sum over k is cut into SPLITS slices, a block each: what the kernels that do so have in common.
#pragma once

#include "pairs.cuh"

struct Slice {
    int first, end;  // k-blocks
};

// The k-blocks of slice number `slice`: as many as the others, or one more. With fewer k-blocks than slices, some have
// none, and sum up to zero.
__device__ __forceinline__ Slice slice_of_k(int slice, int K) {
    static_assert(SPLITS < 2 * BK, "2^31 / BK k-blocks, times SPLITS, are less than 2^32");
    const unsigned blocks = ((unsigned)K + BK - 1) / BK;
    return {(int)(blocks * slice / SPLITS), (int)(blocks * (slice + 1) / SPLITS)};
}

__device__ __forceinline__ float4 add(float4 a, float4 b) {
    return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

// C, and where this tile lies in it.
struct TileOfC {
    Output* C;
    int M, N, ldc, m, n;

    // Finishes a lane's four sums of the piece that begins at this row and column of the tile: two of row lane / 4 and,
    // 8 rows below, two more.
    __device__ __forceinline__ void store(int piece_row, int piece_column, float4 sum, const Epilogue& epilogue,
                                          int lane = threadIdx.x % 32) const {
        const int row = m + piece_row + lane / 4, column = n + piece_column + lane % 4 * 2;
        const bool wide = aligned_to_4(C, ldc);
        store_pair(C, ldc, row, column, M, N, wide, sum.x, sum.y, epilogue);
        store_pair(C, ldc, row + 8, column, M, N, wide, sum.z, sum.w, epilogue);
    }
};
