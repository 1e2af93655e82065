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

// Fetches part `part` of PARTS of it into all blocks of a cluster of PARTS, at the same place in each: some of the rows
// of every box. They are whole groups of 8, the unit of the swizzle.
template <int SIDE, bool MN_MAJOR, int PARTS>
__device__ __forceinline__ void load_tile_part(unsigned tile, const TensorMap* map, int side, int k, unsigned barrier,
                                               int part) {
    constexpr unsigned short ALL_BLOCKS = (1 << PARTS) - 1;
    constexpr int ROWS = (MN_MAJOR ? BK : SIDE) / PARTS;
    static_assert(ROWS % 8 == 0 && ROWS * PARTS == (MN_MAJOR ? BK : SIDE), "whole groups of 8 rows");
    const unsigned to = tile + part * ROWS * 128;
    if constexpr (MN_MAJOR) {
#pragma unroll
        for (int first = 0; first < SIDE; first += 64)
            tma_load_2d_multicast(to + first / 64 * WGMMA_BLOCK_BYTES, map, side + first, k + part * ROWS, barrier,
                                  ALL_BLOCKS);
    } else {
        tma_load_2d_multicast(to, map, k, side + part * ROWS, barrier, ALL_BLOCKS);
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
