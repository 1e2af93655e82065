// An operand's tile of one k-block, 64 k of 16 bits, from global to shared memory by TMA as wgmma reads it (wgmma.cuh).
//
// A tile that several blocks of a cluster need is fetched once: each block asks for a part of it, and the copy engine
// writes the part to all of them. Of a K-major tile a part is some of the rows; of an MN-major tile, some k of every
// block of 64 columns, so that any number of columns falls into equal parts.
#pragma once

#include "tma.cuh"
#include "wgmma.cuh"

// SIDE: of m or n. SHARED_BY: blocks of the cluster that need the same tile.
template <int SIDE, bool MN_MAJOR, int SHARED_BY>
struct TmaTile {
    static constexpr int SIDE_OF_TILE = SIDE;
    static constexpr bool ALONG_SIDE = MN_MAJOR;  // rows in memory run along m or n
    static constexpr int BOXES = MN_MAJOR ? (SIDE + 63) / 64 : 1;
    static constexpr unsigned BYTES = MN_MAJOR ? BOXES * WGMMA_BLOCK_BYTES : SIDE * 128;
    static constexpr int PART_ROWS = (MN_MAJOR ? 64 : SIDE) / SHARED_BY;  // the box: so many rows of 128 bytes
    static_assert(PART_ROWS * SHARED_BY == (MN_MAJOR ? 64 : SIDE) && PART_ROWS % 8 == 0 && PART_ROWS <= 256,
                  "parts begin at multiples of 1024 bytes");

    // Part `part` of the tile whose first m or n is `side` and whose first k is `k`, into `tile` of every block in
    // `blocks`. Each barrier there gets the bytes of all parts: BYTES.
    static __device__ __forceinline__ void load(unsigned tile, const TensorMap* map, int side, int k, unsigned barrier,
                                                unsigned part, unsigned short blocks) {
        const int row = SHARED_BY > 1 ? part * PART_ROWS : 0;
#pragma unroll
        for (int box = 0; box < BOXES; ++box) {
            const unsigned to = tile + box * WGMMA_BLOCK_BYTES + row * 128;
            const int x = MN_MAJOR ? side + 64 * box : k, y = MN_MAJOR ? k + row : side + row;
            if constexpr (SHARED_BY > 1)
                tma_load_2d_multicast(to, map, x, y, barrier, blocks);
            else
                tma_load_2d(to, map, x, y, barrier);
        }
    }

    // Has L2 fetch the same part.
    static __device__ __forceinline__ void prefetch(const TensorMap* map, int side, int k, unsigned part) {
        const int row = SHARED_BY > 1 ? part * PART_ROWS : 0;
#pragma unroll
        for (int box = 0; box < BOXES; ++box)
            tma_prefetch_2d(map, MN_MAJOR ? side + 64 * box : k, MN_MAJOR ? k + row : side + row);
    }
};
