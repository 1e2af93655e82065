// Exercise 2: cure the bank conflicts of a transpose.
//
// Task      C[n][m] = A[m][n], elements of 2 or 4 bytes, any M and N. A tile in shared memory turns the element order
//           around, so that both the load and the store run along rows. This kernel is right, and slow: make it right
//           and fast, by changing how the tile lies in shared memory.
// As        transpose/01_naive: its parameters, its launch of 32 x 8 threads a block, BM = BN = 32, ROWS = 8.
//
// Given     Shared memory has 32 banks; word w of 4 bytes lies in bank w % 32. A warp's access takes as many turns as
//           the busiest bank has different words to give. A warp writes a row of the tile, tile[y][0..31]: 32 words, 32
//           banks, one turn. It reads a column, tile[0..31][y].
// Think of  In which banks do the 32 words of a column lie? What would one more word in each row do? Or: which other
//           place in its row could element (row, column) have, so that rows and columns both spread over all banks?
// Read      cu/transpose/01_naive.cu, and docs/reading-a-kernel.md.
//
// Check     lowlevel exercise 2
// Passing   It compiles and still goes through shared memory; the rows of a tile of 4-byte elements are an odd number
//           of words apart, or the place in a row is found by XOR; and on a GPU every element is right. Conflicts
//           themselves are counted by profilers only: what the cure is worth, `lowlevel bench` shows.

#if ELEMENT_BYTES == 4
typedef unsigned int Element;
#else
typedef unsigned short Element;
#endif

static_assert(BM == BN, "a column of the tile becomes a row of C's tile");

extern "C" __global__ void __launch_bounds__(BN * ROWS)
transpose(const Element* __restrict__ A, Element* __restrict__ C, int M, int N, int lda, int ldc) {
    __shared__ Element tile[BM][BN];

    const int x = threadIdx.x, y = threadIdx.y;
    const int m0 = blockIdx.y * BM;  // the tile's corner in A
    const int n0 = blockIdx.x * BN;

#pragma unroll
    for (int i = 0; i < BM; i += ROWS) {
        const int m = m0 + y + i;
        if (m < M && n0 + x < N) tile[y + i][x] = A[(long long)m * lda + n0 + x];
    }
    __syncthreads();  // the tile is whole before anyone reads it
#pragma unroll
    for (int i = 0; i < BN; i += ROWS) {
        const int n = n0 + y + i;
        if (n < N && m0 + x < M) C[(long long)n * ldc + m0 + x] = tile[x][y + i];
    }
}
