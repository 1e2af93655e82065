// 03 padded tile: 02 with one more float in each row of As. It cures nothing, and says why.
//
// Computes  C[m][n] = sum over k of A[m][k] B[k][n],  row-major, layout NN, any M, N, K.
// Idea      "Pad shared rows by one word against bank conflicts" is good advice for a warp that walks down a column.
//           No warp of 02 does. So this rung is an exercise in asking first: which words does one warp touch at once?
//
//           store  As[y][x]   32 neighbouring words                       1 wavefront, padded or not
//           store  Bs[y][x]   32 neighbouring words                       1 wavefront
//           load   As[y][k]   one word for all lanes: a broadcast         1 wavefront, padded or not
//           load   Bs[k][x]   32 neighbouring words                       1 wavefront
//
//           The pad has a price. In 02 four neighbouring As[y][k] are 16 aligned bytes, and the compiler reads them
//           with one LDS.128. Rows of 33 words start at any word, so here it reads each by itself: 64 shared loads
//           for 32 FMAs instead of 40.
//
// Tile      BM x BN x BK = 32 x 32 x 32; block (n_block, m_block) of the grid owns C's tile of those numbers.
// Threads   Thread (x, y) loads A[y][x] and B[y][x] of each pair of tiles and computes C[y][x]. A warp is one y.
// Shared    bytes    0 ..  4223  As[32][33]   As[m][k], k = 32 never used
//           bytes 4224 ..  8319  Bs[32][32]   Bs[k][n]
// Tails     An element outside A or B is loaded as zero, which adds nothing to any sum.
// Limit     The load unit, more so than in 02: this rung is slower than the one before it.

static_assert(BM == BN && BN == BK, "a thread loads one element of A and one of B, and computes one of C");

extern "C" __global__ void __launch_bounds__(BM * BN)
gemm(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C,
     int M, int N, int K, int lda, int ldb, int ldc) {
    __shared__ float As[BM][BK + 1];
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
