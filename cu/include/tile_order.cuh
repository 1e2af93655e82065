// The order in which blocks take the tiles of an array.
#pragma once

struct TileIndex {
    int m, n;
};

// Tile number `block` of tiles_m x tiles_n, walked in strips of `group` rows of tiles, column by column inside a strip.
//
// Blocks start in the order of their numbers (nothing promises it; so it is seen), so those that run at once are one
// rectangle of tiles: F of them take `group` rows and F / group columns. A transpose reads that rectangle in runs of
// neighbouring lines F / group tiles long, one a row of A, and writes it in runs of `group` tiles, one a row of C:
//     group = 1          A in long runs; C in runs of one tile, each in another row
//     group = sqrt(F)    both alike
//     group = tiles_m    C in whole rows, neighbours by consecutive blocks; A in runs of a few tiles
// Presumed: long runs of writes are worth more than long runs of reads. DRAM serves the lines of an open page much
// faster than it opens the next. Loads wait in queues, where those to one page can be served together; a written line
// waits in L2 until it is evicted, and finds its neighbours there only if they were written at about the same time.
__device__ __forceinline__ TileIndex tile_of_block(int block, int tiles_m, int tiles_n, int group) {
    const int height = min(group, tiles_m);
    const int strip = block / (height * tiles_n);
    const int first = strip * height;
    const int inside = block - first * tiles_n;
    const int rows = min(height, tiles_m - first);  // the last strip may be lower
    return {first + inside % rows, inside / rows};
}
