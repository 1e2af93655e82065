// 01 naive transpose: C[n][m] = A[m][n], elements of 2 or 4 bytes, any M and N.
//
// Idea      None yet: read along rows, write along columns.
//
// Tile      BM x BN = 32 x 32 elements of A; block (n_block, m_block) of the grid.
// Threads   32 x 8: thread (x, y) moves A[tile_m + y + 8 i][tile_n + x] for i = 0..3.
// Shared    None.
// Limit     A warp's load is 32 neighbours of a row: one or two 128-byte lines. Its store puts the same 32 elements
//           into 32 different rows of C: 32 sectors of 32 bytes for 64 or 128 bytes of payload. The L2 cache joins
//           what neighbouring warps write to a line, as long as the line stays there. A tile in shared memory, read
//           by columns, makes both sides run along rows.

#if ELEMENT_BYTES == 4
typedef unsigned int Element;
#else
typedef unsigned short Element;
#endif

extern "C" __global__ void __launch_bounds__(BN * ROWS)
transpose(const Element* __restrict__ A, Element* __restrict__ C, int M, int N, int lda, int ldc) {
    const int n = blockIdx.x * BN + threadIdx.x;
    const int m0 = blockIdx.y * BM + threadIdx.y;
#pragma unroll
    for (int i = 0; i < BM; i += ROWS) {
        const int m = m0 + i;
        if (m < M && n < N) C[(long long)n * ldc + m] = A[(long long)m * lda + n];
    }
}
