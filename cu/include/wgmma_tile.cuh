// An operand tile from global memory by TMA into shared memory, and from there by wgmma.
//
// SIDE of m or n by 128 bytes of k (BK elements): as wgmma.cuh describes it, in the boxes of lowlevel/catalog/boxes.py.
#pragma once

#include "tma.cuh"
#include "wgmma.cuh"

static_assert(BK * sizeof(Operand) == 128, "a row of a K-major tile is what the swizzle spans");
constexpr int WGMMA_K_STEPS = 4;  // of 32 bytes

// MN-major tiles are whole blocks of 64.
template <int SIDE, bool MN_MAJOR>
constexpr unsigned TILE_BYTES = MN_MAJOR ? (SIDE + 63) / 64 * WGMMA_BLOCK_BYTES : SIDE * 128;

// Fetches the tile at `side` of m or n and at `k`. One thread.
template <int SIDE, bool MN_MAJOR>
__device__ __forceinline__ void load_tile(unsigned tile, const TensorMap* map, int side, int k, unsigned barrier) {
    if constexpr (MN_MAJOR) {
#pragma unroll
        for (int first = 0; first < SIDE; first += 64)
            tma_load_2d(tile + first / 64 * WGMMA_BLOCK_BYTES, map, side + first, k, barrier);
    } else {
        tma_load_2d(tile, map, k, side, barrier);
    }
}

// D += A B over the tiles' BK, D = A B where not `accumulate`. A: 64 rows. A warpgroup, between fence and commit.
template <int N, bool A_MN_MAJOR, bool B_MN_MAJOR>
__device__ __forceinline__ void multiply_tiles(float (&d)[N / 2], MatrixDescriptor a, MatrixDescriptor b,
                                               bool accumulate) {
#pragma unroll
    for (int step = 0; step < WGMMA_K_STEPS; ++step)
        wgmma<N, A_MN_MAJOR, B_MN_MAJOR>(d, a.advance(step * WGMMA_K_STEP_BYTES<A_MN_MAJOR>),
                                         b.advance(step * WGMMA_K_STEP_BYTES<B_MN_MAJOR>), step > 0 || accumulate);
}
