// 05 vectorised: C[n][m] = A[m][n], 16 bytes an access; elements of 2 or 4 bytes, any M and N.
//
// Idea      A thread takes a square sub-tile of E x E elements, E of them in 16 bytes: it loads 16 bytes of each of E
//           rows, transposes the square in registers, and has 16 bytes of each of E rows of C. Both memories then see
//           16-byte accesses alone; shared memory only regroups whole vectors, so that a row of C leaves in one piece.
//
// Vector    16 bytes: E = 4 elements of 4 bytes, or 8 of 2.
// Tile      TILE_M x TILE_N sub-tiles; with 16 x 16, 64 x 64 elements of 4 bytes or 128 x 128 of 2.
// Order     Blocks walk the tiles in strips of GROUP = 256 rows of tiles (tile_order.cuh), so that those that run at
//           once write whole rows of C; with 8, runs of 8 tiles.
// Threads   THREADS; sub-tile number s, at (mv, nv) = (s / TILE_N, s % TILE_N), belongs to thread s % THREADS. A thread
//           has E loads of 16 bytes in flight for each of its sub-tiles.
// Warps     Load: 16 lanes take 256 bytes of a row, the other 16 of the row E below. Store: two rows of C, 256 bytes
//           of each (with TILE_M = TILE_N = 8: pieces of 128 bytes, one whole line).
// Shared    tile[n][mv], TILE_N E rows of TILE_M vectors: row n of the tile of C, in vectors along m. With 16 x 16
//           sub-tiles bytes 0 .. 16383 (4-byte elements) or 0 .. 32767 (2-byte). Vector mv of row n is in column
//           mv ^ (n / E % 8).
//           A 16-byte access goes in four phases of 8 lanes, and a phase must take the 8 groups of four banks once
//           each. Write: 8 lanes have one mv and 8 neighbouring nv = n / E, so 8 different columns modulo 8. Read: 8
//           neighbouring mv of one row, permuted by one XOR. Both are one wavefront a phase, the least there is.
// Tails     Each side by itself: 16 bytes at a time where the tile is whole and the rows of that side begin at
//           multiples of 16 bytes, otherwise element by element, lanes along the row, through the same tile. The
//           element-wise write to shared memory has 4-way conflicts (8-way with 2-byte elements).
// Stream    STREAM = 1 marks loads and stores 'evict first': no byte is touched twice, so none is worth a line of L2
//           longer than it takes to fill or drain it. Element-wise tails are not marked.
// Limit     Device memory.

#include "tile_order.cuh"
#include "word.cuh"

constexpr int E = 16 / ELEMENT_BYTES;                    // elements in a vector
constexpr int SIDE_M = TILE_M * E, SIDE_N = TILE_N * E;  // a tile's sides in elements
constexpr int SUBTILES = TILE_M * TILE_N / THREADS;      // of each thread
// Blocks an SM should hold. A thread keeps 4 E registers of each sub-tile until all are loaded: 1536 threads have 42
// registers each, enough for 16; twice the data is given to half the threads. The bytes in flight are the same.
constexpr int BLOCKS = 1536 / (SUBTILES * E / 4) / THREADS;
static_assert(TILE_M % 8 == 0 && TILE_N % 8 == 0, "8 lanes take neighbouring vectors, in both directions");
static_assert(TILE_M * TILE_N % THREADS == 0 && THREADS % 32 == 0, "every thread has as many sub-tiles");

typedef uint4 Tile[SIDE_N][TILE_M];

// Of row n of the tile, the column where vector mv is.
__device__ __forceinline__ int swizzled(int n, int mv) { return mv ^ (n / E % 8); }

// Element (m, n) of the tile.
__device__ __forceinline__ Element& element(Tile& tile, int m, int n) {
    return reinterpret_cast<Element*>(&tile[n][swizzled(n, m / E)])[m % E];
}

__device__ __forceinline__ uint4 load_vector(const Element* from) {
    const uint4* vector = reinterpret_cast<const uint4*>(from);
    return STREAM ? __ldcs(vector) : *vector;
}

__device__ __forceinline__ void store_vector(Element* to, uint4 value) {
    uint4* vector = reinterpret_cast<uint4*>(to);
    if (STREAM)
        __stcs(vector, value);
    else
        *vector = value;
}

// E x E elements, E vectors of four words: PACK x PACK blocks change places as wholes, which is only a matter of naming
// registers, and are transposed inside.
__device__ __forceinline__ void transpose_subtile(const uint4 (&in)[E], uint4 (&out)[E]) {
    const unsigned(&from)[E][4] = reinterpret_cast<const unsigned(&)[E][4]>(in);
    unsigned(&to)[E][4] = reinterpret_cast<unsigned(&)[E][4]>(out);
#pragma unroll
    for (int m = 0; m < 4; ++m)
#pragma unroll
        for (int n = 0; n < 4; ++n) {
            unsigned block[PACK];
#pragma unroll
            for (int p = 0; p < PACK; ++p) block[p] = from[PACK * m + p][n];
            transpose_words(block);
#pragma unroll
            for (int p = 0; p < PACK; ++p) to[PACK * n + p][m] = block[p];
        }
}

__device__ __forceinline__ void load_vectors(Tile& tile, const Element* __restrict__ A, int lda) {
    uint4 loaded[SUBTILES][E];
#pragma unroll
    for (int i = 0; i < SUBTILES; ++i) {
        const int s = threadIdx.x + i * THREADS;
        const Element* corner = A + (long long)(s / TILE_N * E) * lda + s % TILE_N * E;
#pragma unroll
        for (int r = 0; r < E; ++r) loaded[i][r] = load_vector(corner + (long long)r * lda);
    }
#pragma unroll
    for (int i = 0; i < SUBTILES; ++i) {
        const int s = threadIdx.x + i * THREADS;
        const int mv = s / TILE_N, n = s % TILE_N * E;
        uint4 turned[E];
        transpose_subtile(loaded[i], turned);
#pragma unroll
        for (int r = 0; r < E; ++r) tile[n + r][swizzled(n, mv)] = turned[r];
    }
}

__device__ __forceinline__ void store_vectors(const Tile& tile, Element* __restrict__ C, int ldc) {
#pragma unroll
    for (int i = 0; i < SIDE_N * TILE_M; i += THREADS) {
        const int n = (threadIdx.x + i) / TILE_M, mv = threadIdx.x % TILE_M;
        store_vector(C + (long long)n * ldc + mv * E, tile[n][swizzled(n, mv)]);
    }
}

// rows, columns: what there is of A from the tile's corner on. Eight loads in flight.
__device__ __forceinline__ void load_elements(Tile& tile, const Element* __restrict__ A, int lda, int rows,
                                              int columns) {
    constexpr int BATCH = 8;
    for (int i = threadIdx.x; i < SIDE_M * SIDE_N; i += BATCH * THREADS) {
        Element value[BATCH];
#pragma unroll
        for (int b = 0; b < BATCH; ++b) {
            const int m = (i + b * THREADS) / SIDE_N, n = (i + b * THREADS) % SIDE_N;
            value[b] = m < rows && n < columns ? A[(long long)m * lda + n] : Element(0);
        }
#pragma unroll
        for (int b = 0; b < BATCH; ++b)
            element(tile, (i + b * THREADS) / SIDE_N, (i + b * THREADS) % SIDE_N) = value[b];
    }
}

__device__ __forceinline__ void store_elements(Tile& tile, Element* __restrict__ C, int ldc, int rows, int columns) {
#pragma unroll 4
    for (int i = threadIdx.x; i < SIDE_M * SIDE_N; i += THREADS) {
        const int n = i / SIDE_M, m = i % SIDE_M;
        if (m < rows && n < columns) C[(long long)n * ldc + m] = element(tile, m, n);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
transpose(const Element* __restrict__ A, Element* __restrict__ C, int M, int N, int lda, int ldc) {
    __shared__ Tile tile;
    const int tiles_m = (M - 1) / SIDE_M + 1, tiles_n = (N - 1) / SIDE_N + 1;
    const TileIndex index = tile_of_block(blockIdx.x, tiles_m, tiles_n, GROUP);
    const int m0 = index.m * SIDE_M, n0 = index.n * SIDE_N;
    const int rows = M - m0, columns = N - n0;
    const bool whole = rows >= SIDE_M && columns >= SIDE_N;
    const bool vectors_in = whole && rows_aligned(A, lda, 16), vectors_out = whole && rows_aligned(C, ldc, 16);
    A += (long long)m0 * lda + n0;
    C += (long long)n0 * ldc + m0;
    if (vectors_in)
        load_vectors(tile, A, lda);
    else
        load_elements(tile, A, lda, rows, columns);
    __syncthreads();  // the tile is whole before anyone reads it
    if (vectors_out)
        store_vectors(tile, C, ldc);
    else
        store_elements(tile, C, ldc, rows, columns);
}
