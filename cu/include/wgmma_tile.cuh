// An operand tile from global memory by TMA into shared memory, and from there by wgmma.
//
// SIDE of m or n by 128 bytes of k (BK elements): as wgmma.cuh describes it, in the boxes of lowlevel/catalog/boxes.py.
#pragma once

#include "tma_tile.cuh"
#include "wgmma.cuh"

static_assert(BK * sizeof(Operand) == 128, "a row of a K-major tile is what the swizzle spans");
constexpr int WGMMA_K_STEPS = 4;  // of 32 bytes

// MN-major tiles are whole blocks of 64.
template <int SIDE, bool MN_MAJOR>
constexpr unsigned TILE_BYTES = TmaTile<SIDE, MN_MAJOR, 1>::BYTES;

// Fetches the tile at `side` of m or n and at `k`. One thread.
template <int SIDE, bool MN_MAJOR>
__device__ __forceinline__ void load_tile(unsigned tile, const TensorMap* map, int side, int k, unsigned barrier) {
    TmaTile<SIDE, MN_MAJOR, 1>::load(tile, map, side, k, barrier, 0, 1);
}

// Fetches part `part` of PARTS of it into all blocks of a cluster of PARTS, at the same place in each.
template <int SIDE, bool MN_MAJOR, int PARTS>
__device__ __forceinline__ void load_tile_part(unsigned tile, const TensorMap* map, int side, int k, unsigned barrier,
                                               int part) {
    TmaTile<SIDE, MN_MAJOR, PARTS>::load(tile, map, side, k, barrier, part, (1 << PARTS) - 1);
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
