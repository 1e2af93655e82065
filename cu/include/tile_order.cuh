// The order in which blocks take the tiles of an array.
#pragma once

struct TileIndex {
    int m, n;
};

// Tile number `block` of tiles_m x tiles_n, walked in strips of `group` rows of tiles, column by column inside a strip.
// Blocks start in the order of their numbers, so the tiles in flight at one time are a rectangle of `group` rows: with
// group = 1 a thin one, whose transposed image is one tile wide and as tall as the array (every write is in another row
// of C); with larger groups both sides work on pieces of memory of about the same length.
__device__ __forceinline__ TileIndex tile_of_block(int block, int tiles_m, int tiles_n, int group) {
    const int height = min(group, tiles_m);
    const int strip = block / (height * tiles_n);
    const int first = strip * height;
    const int inside = block - first * tiles_n;
    const int rows = min(height, tiles_m - first);  // the last strip may be lower
    return {first + inside % rows, inside / rows};
}
