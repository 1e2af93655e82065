// 02 tiled: C = A B in fp32, tiles of A and B shared by a block.
//
// Computes  C[m][n] = sum over k of A[m][k] B[k][n],  row-major, layout NN, any M, N, K.
// Idea      A block of 32 x 32 threads computes a 32 x 32 tile of C. It walks along K in steps of 32, loads one tile
//           of A and one of B into shared memory, and every float loaded is used by 32 threads: 32 times fewer
//           reads of global memory than 01, 8 FLOP a byte instead of 0.25.
//
// Tile      BM x BN x BK = 32 x 32 x 32; block (n_block, m_block) of the grid owns C's tile of those numbers.
// Threads   Thread (x, y) loads A[y][x] and B[y][x] of each pair of tiles and computes C[y][x] of its tile.
//           A warp is one y: 32 neighbouring floats of a row at each load and store, one 128-byte line.
// Shared    bytes    0 ..  4095  As[32][32]   As[m][k]
//           bytes 4096 ..  8191  Bs[32][32]   Bs[k][n]
//           In the inner loop a warp reads As[y][k], one word for all lanes (a broadcast), and Bs[k][x], 32
//           neighbouring words in 32 banks: no bank conflict, so there is nothing here for padding to cure.
// Tails     An element outside A or B is loaded as zero, which adds nothing to any sum.
// Limit     An FMA still needs a fresh word of Bs (and As's words, which the compiler reads four at a time): 40 shared
//           loads for 32 FMAs, and the load unit takes one of them a clock where the FMA units take four. Registers
//           can hold what is read again and again: rung 04.

static_assert(BM == BN && BN == BK, "a thread loads one element of A and one of B, and computes one of C");

extern "C" __global__ void __launch_bounds__(BM * BN)
gemm(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C,
     int M, int N, int K, int lda, int ldb, int ldc) {
    __shared__ float As[BM][BK];
    __shared__ float Bs[BK][BN];

    const int x = threadIdx.x, y = threadIdx.y;
    const int m = blockIdx.y * BM + y;
    const int n = blockIdx.x * BN + x;

    float acc = 0.0f;
    for (int k_block = 0; k_block < K; k_block += BK) {
        const int a_k = k_block + x;
        const int b_k = k_block + y;
        As[y][x] = m < M && a_k < K ? A[(long long)m * lda + a_k] : 0.0f;
        Bs[y][x] = b_k < K && n < N ? B[(long long)b_k * ldb + n] : 0.0f;
        __syncthreads();  // both tiles are whole before anyone reads them
#pragma unroll
        for (int k = 0; k < BK; ++k) acc += As[y][k] * Bs[k][x];
        __syncthreads();  // everyone is done reading before the next tiles overwrite these
    }
    if (m < M && n < N) C[(long long)m * ldc + n] = acc;
}
