// A tile of C whose sum over k is cut into SPLITS slices, a block each: what the kernels that do so have in common.
#pragma once

#include "pairs.cuh"
#include "slice_of_k.cuh"

// The k-blocks of slice number `slice`. One that has none sums up to zero.
__device__ __forceinline__ Slice slice_of_k(int slice, int K) {
    return slice_of_blocks(slice, ((unsigned)K + BK - 1) / BK);
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
