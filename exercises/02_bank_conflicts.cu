// Exercise 2: cure the bank conflicts of a transpose.
//
// Task      C[n][m] = A[m][n], elements of 2 or 4 bytes, any M and N. A tile in shared memory turns the element order
//           around, so that both the load and the store run along rows. This kernel is right, and slow: make it right
//           and fast, by changing how the tile lies in shared memory.
// As        transpose/03_padded, where it is cured: its parameters, its launch of 32 x 8 threads a block, TILE = 32,
//           ROWS = 8. A tile is TILE x TILE words of 4 bytes: 32 x 32 elements of 4 bytes, or 64 x 64 of 2.
//
// Given     Shared memory has 32 banks; word w of 4 bytes lies in bank w % 32. A warp's access takes as many turns as
//           the busiest bank has different words to give. With elements of 4 bytes a warp writes a row of the tile,
//           tile[row][0..31]: 32 words, 32 banks, one turn. It reads a column, tile[0..31][column].
// Think of  In which banks do the 32 words of a column lie? What would one more word in each row do? (How many elements
//           of 2 bytes is that?) Or: which other place in its row could element (row, column) have, so that rows and
//           columns both spread over all banks?
// Read      cu/transpose/01_naive.cu, and docs/reading-a-kernel.md. When you have finished, cu/transpose/03_padded.cu.
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

constexpr int WARP = 32;
constexpr int WORD = 4 / ELEMENT_BYTES;  // elements in a word of 4 bytes
constexpr int SIDE = TILE * WORD;        // elements along each side of a tile
static_assert(TILE == WARP, "a warp moves one row of words");

extern "C" __global__ void __launch_bounds__(WARP * ROWS)
transpose(const Element* __restrict__ A, Element* __restrict__ C, int M, int N, int lda, int ldc) {
    __shared__ Element tile[SIDE][SIDE];

    const int m0 = blockIdx.y * SIDE;  // the tile's corner in A
    const int n0 = blockIdx.x * SIDE;

#pragma unroll
    for (int row = threadIdx.y; row < SIDE; row += ROWS)
#pragma unroll
        for (int column = threadIdx.x; column < SIDE; column += WARP) {
            const int m = m0 + row, n = n0 + column;
            if (m < M && n < N) tile[row][column] = A[(long long)m * lda + n];
        }
    __syncthreads();  // the tile is whole before anyone reads it
#pragma unroll
    for (int column = threadIdx.y; column < SIDE; column += ROWS)
#pragma unroll
        for (int row = threadIdx.x; row < SIDE; row += WARP) {
            const int m = m0 + row, n = n0 + column;
            if (m < M && n < N) C[(long long)n * ldc + m] = tile[row][column];
        }
}
