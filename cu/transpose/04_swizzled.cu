// 04 swizzled: C[n][m] = A[m][n] through a swizzled tile; elements of 2 or 4 bytes, any M and N.
//
// Idea      No padding: word (m, n) of the tile is stored in column n ^ (m % 32) of row m. XOR with a constant permutes
//           32 neighbouring words, so a row still takes 32 banks; and 32 rows have 32 different constants, so a column
//           takes 32 banks too. The tile is a power of two again, and may be of any such size: larger ones, so that
//           each thread has more loads in flight.
//
// Tile      TILE_M x TILE_N = 64 x 64 words; multiples of 32. A word is one element of 4 bytes or two of 2, as in 02.
//           A row of the tile is 256 bytes, two neighbouring lines, in A and in C alike. With 64 x 32 those of A are
//           one line.
// Order     Blocks walk the tiles in strips of GROUP = 256 rows of tiles (tile_order.cuh): down all of A, where it has
//           no more than that, so that the blocks which run at once write whole rows of C; in strips of 8 they write
//           runs of 8 tiles. tile_order.cuh says what that is presumed to be worth; both are in the catalog, measure.
// Threads   32 x ROWS = 32 x 8: a warp moves 32 words of a row, one line of 128 bytes, at a time. A thread has 16 loads
//           in flight before the barrier (32 with 2-byte elements).
// Shared    64 x 64 words:  bytes     0 .. 16383  tile[0], word (m, n) at byte 256 m + 4 (n ^ (m % 32))
//                           bytes 16384 .. 32767  tile[1], for 2-byte elements
//           Write: one m, 32 n. Read: one n, 32 m. Bank (n ^ m) % 32 both times: one wavefront a request.
// Tails     As in 02: element by element.
// Limit     Device memory. What is left to save are instructions: every 4 bytes take a load and a store of either
//           memory. 05 does it with 16 bytes at a time, a quarter as many.

#include "tile_order.cuh"
#include "word.cuh"

constexpr int WARP = 32;
constexpr int SIDE_M = TILE_M * PACK, SIDE_N = TILE_N * PACK;  // a tile's sides in elements
static_assert(TILE_M % WARP == 0 && TILE_N % WARP == 0, "a warp moves 32 words of a row");
static_assert(TILE_M % ROWS == 0 && TILE_N % ROWS == 0, "every warp moves as many rows");

typedef unsigned Tile[PACK][TILE_M][TILE_N];

__device__ __forceinline__ int swizzled(int m, int n) { return n ^ (m % WARP); }

// A, C: corners of the tile. rows, columns: what there is of A from there on.
template <bool WHOLE>
__device__ __forceinline__ void load_tile(Tile& tile, const Element* __restrict__ A, int lda, int rows, int columns) {
    const int x = threadIdx.x, y = threadIdx.y;
    unsigned word[TILE_M / ROWS][TILE_N / WARP][PACK];
#pragma unroll
    for (int i = 0; i < TILE_M / ROWS; ++i)
#pragma unroll
        for (int j = 0; j < TILE_N / WARP; ++j)
#pragma unroll
            for (int p = 0; p < PACK; ++p)
                word[i][j][p] =
                    load_word<WHOLE>(A, lda, PACK * (y + i * ROWS) + p, PACK * (x + j * WARP), rows, columns);
#pragma unroll
    for (int i = 0; i < TILE_M / ROWS; ++i)
#pragma unroll
        for (int j = 0; j < TILE_N / WARP; ++j) {
            const int m = y + i * ROWS, n = x + j * WARP;
            transpose_words(word[i][j]);
#pragma unroll
            for (int p = 0; p < PACK; ++p) tile[p][m][swizzled(m, n)] = word[i][j][p];
        }
}

template <bool WHOLE>
__device__ __forceinline__ void store_tile(const Tile& tile, Element* __restrict__ C, int ldc, int rows, int columns) {
#pragma unroll
    for (int i = 0; i < TILE_N / ROWS; ++i)
#pragma unroll
        for (int j = 0; j < TILE_M / WARP; ++j) {
            const int n = threadIdx.y + i * ROWS, m = threadIdx.x + j * WARP;
#pragma unroll
            for (int p = 0; p < PACK; ++p)
                store_word<WHOLE>(C, ldc, PACK * n + p, PACK * m, columns, rows, tile[p][m][swizzled(m, n)]);
        }
}

extern "C" __global__ void __launch_bounds__(WARP * ROWS, 1)  // 1: registers for all loads in flight
transpose(const Element* __restrict__ A, Element* __restrict__ C, int M, int N, int lda, int ldc) {
    __shared__ Tile tile;
    const int tiles_m = (M - 1) / SIDE_M + 1, tiles_n = (N - 1) / SIDE_N + 1;
    const TileIndex index = tile_of_block(blockIdx.x, tiles_m, tiles_n, GROUP);
    const int m0 = index.m * SIDE_M, n0 = index.n * SIDE_N;
    const int rows = M - m0, columns = N - n0;
    const bool whole = rows >= SIDE_M && columns >= SIDE_N && rows_aligned(A, lda, 4) && rows_aligned(C, ldc, 4);
    A += (long long)m0 * lda + n0;
    C += (long long)n0 * ldc + m0;
    if (whole)
        load_tile<true>(tile, A, lda, rows, columns);
    else
        load_tile<false>(tile, A, lda, rows, columns);
    __syncthreads();  // the tile is whole before anyone reads it
    if (whole)
        store_tile<true>(tile, C, ldc, rows, columns);
    else
        store_tile<false>(tile, C, ldc, rows, columns);
}
