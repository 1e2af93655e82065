// Slices of the k-blocks that a tile is summed up over, SPLITS of them.
#pragma once

struct Slice {
    int first, end;  // k-blocks
};

// Slice number `slice` of all the k-blocks: as many as the others have, or one more. With fewer k-blocks than slices,
// some have none.
__device__ __forceinline__ Slice slice_of_blocks(int slice, unsigned k_blocks) {
    static_assert(SPLITS < 2 * BK, "2^31 / BK k-blocks, times SPLITS, are less than 2^32");
    return {(int)(k_blocks * slice / SPLITS), (int)(k_blocks * (slice + 1) / SPLITS)};
}
