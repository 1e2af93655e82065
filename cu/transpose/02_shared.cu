// 02 shared: C[n][m] = A[m][n] through a tile in shared memory; elements of 2 or 4 bytes, any M and N.
//
// Idea      Both sides of device memory run along rows. A block reads a tile of A row by row into shared memory and
//           writes it to C row by row: what strides is the read of shared memory, by columns.
//
// Word      Shared memory is 32 banks of 4-byte words, so words are what is moved: one element of 4 bytes, or two
//           neighbours of 2 bytes. With two, a thread takes words of two rows and exchanges halves in registers
//           (transpose_words): word p of the pair then holds two neighbours of a column of A, a word of a row of C.
// Tile      TILE x TILE = 32 x 32 words: 32 x 32 elements of 4 bytes or 64 x 64 of 2. Block (n_block, m_block).
// Threads   32 x 8: thread (x, y) moves words (y + 8 i, x), i = 0..3. A warp is one y: it reads and writes 128 bytes
//           of a row, one whole line.
// Shared    bytes    0 ..  4095  tile[0][m][n], 32 x 32 words
//           bytes 4096 ..  8191  tile[1][m][n], for 2-byte elements: the words of the odd columns of A
// Tails     Tiles that are not whole go element by element; so do 2-byte elements when a row begins inside a word.
// Limit     A warp reads tile[p][0 .. 31][n]: 32 words, 128 bytes apart, all in one bank. They come one a clock, 32
//           wavefronts for one request, 31 more than it needs. With the write that is 33 clocks for 128 bytes: the
//           132 SMs of an H200 at 1.98 GHz move at most 2.0 TB/s, in and out together, whatever device memory can do.

#include "word.cuh"

constexpr int SIDE = TILE * PACK;  // elements along each side of a tile
static_assert(TILE == 32, "a warp moves one row of words");

typedef unsigned Tile[PACK][TILE][TILE];

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
