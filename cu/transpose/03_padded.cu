// 03 padded: C[n][m] = A[m][n] through a padded tile; elements of 2 or 4 bytes, any M and N.
//
// Idea      One word of padding at the end of each row of the tile. A column's words are then 33 words apart instead of
//           32, and lie in 32 different banks. Everything else is 02.
//
// Tile      TILE x TILE = 32 x 32 words: 32 x 32 elements of 4 bytes or 64 x 64 of 2. Block (n_block, m_block).
// Threads   32 x 8: thread (x, y) moves words (y + 8 i, x), i = 0..3; a warp is one y.
// Shared    bytes    0 ..  4223  tile[0][m][n], 32 rows of 33 words; the last word of each is never touched
//           bytes 4224 ..  8447  tile[1][m][n], for 2-byte elements
//           Word (m, n) is in bank (33 m + n) % 32 = (m + n) % 32. A warp's write has one m and 32 n, its read one n
//           and 32 m: 32 banks each time, one wavefront a request.
// Tails     As in 02: element by element.
// Limit     Device memory, and how well it is kept busy: a thread has four loads in flight, a block 4 KB (twice
//           that with 2-byte elements). The padding costs 3 % of the tile and leaves rows that no 16-byte access can
//           use. 04 does without it.

#include "word.cuh"

constexpr int SIDE = TILE * PACK;  // elements along each side of a tile
static_assert(TILE == 32, "a warp moves one row of words");

typedef unsigned Tile[PACK][TILE][TILE + 1];

// A, C: corners of the tile. rows, columns: what there is of A from there on.
template <bool WHOLE>
__device__ __forceinline__ void move_tile(Tile& tile, const Element* __restrict__ A, Element* __restrict__ C,
                                          int rows, int columns, int lda, int ldc) {
    const int x = threadIdx.x, y = threadIdx.y;
    unsigned word[TILE / ROWS][PACK];
#pragma unroll
    for (int i = 0; i < TILE / ROWS; ++i)
#pragma unroll
        for (int p = 0; p < PACK; ++p)
            word[i][p] = load_word<WHOLE>(A, lda, PACK * (y + i * ROWS) + p, PACK * x, rows, columns);
#pragma unroll
    for (int i = 0; i < TILE / ROWS; ++i) {
        transpose_words(word[i]);
#pragma unroll
        for (int p = 0; p < PACK; ++p) tile[p][y + i * ROWS][x] = word[i][p];
    }
    __syncthreads();  // the tile is whole before anyone reads it
#pragma unroll
    for (int i = 0; i < TILE / ROWS; ++i)
#pragma unroll
        for (int p = 0; p < PACK; ++p)
            store_word<WHOLE>(C, ldc, PACK * (y + i * ROWS) + p, PACK * x, columns, rows, tile[p][x][y + i * ROWS]);
}

extern "C" __global__ void __launch_bounds__(TILE * ROWS)
transpose(const Element* __restrict__ A, Element* __restrict__ C, int M, int N, int lda, int ldc) {
    __shared__ Tile tile;
    const int m0 = blockIdx.y * SIDE, n0 = blockIdx.x * SIDE;
    const int rows = M - m0, columns = N - n0;
    const bool whole = rows >= SIDE && columns >= SIDE && rows_aligned(A, lda, 4) && rows_aligned(C, ldc, 4);
    A += (long long)m0 * lda + n0;
    C += (long long)n0 * ldc + m0;
    if (whole)
        move_tile<true>(tile, A, C, rows, columns, lda, ldc);
    else
        move_tile<false>(tile, A, C, rows, columns, lda, ldc);
}
