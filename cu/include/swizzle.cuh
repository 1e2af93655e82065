// A tile in shared memory without a pad and without bank conflicts: chunks of 16 bytes change places inside their row.
//
// 128 bytes are one pass over the 32 banks, so a chunk's group of 4 banks is its place modulo 8. ldmatrix and stores of
// 16 bytes serve eight chunks at a time, and want them in eight different groups. In plain rows of 128 bytes, chunk c
// of every row lies in group c: eight rows, one group, eight passes. So the row's number is XORed into the chunk's:
//
//   row 0   0 1 2 3 4 5 6 7      chunk c of row r lies at place c ^ r % 8. Eight chunks of one row still fill the row,
//   row 1   1 0 3 2 5 4 7 6      and eight rows' chunks c are now in eight different places.
//   row 2   2 3 0 1 6 7 4 5
//
// Longer rows hold whole passes. Rows of 64 or 32 bytes lie two or four to a pass: they differ in their groups already
// and share one XOR; with a plain c ^ r, rows 0 and 3 of 64 bytes would meet in one group.
#pragma once

constexpr int CHUNK_BYTES = 16;

// Bytes from the tile's first to those of chunk `chunk` of row `row`. The tile starts at a multiple of 128 bytes.
// ROW_BYTES: 32, 64, or a multiple of 128.
template <int ROW_BYTES>
__device__ __forceinline__ int swizzled(int row, int chunk) {
    constexpr int SHARING = ROW_BYTES < 128 ? 128 / ROW_BYTES : 1;  // rows that lie in one pass
    constexpr int PLACES = ROW_BYTES < 128 ? ROW_BYTES / CHUNK_BYTES : 8;
    static_assert(SHARING * ROW_BYTES % 128 == 0, "rows fill whole passes");
    return row * ROW_BYTES + (chunk ^ row / SHARING % PLACES) * CHUNK_BYTES;
}
