// 01 naive: C = A B in fp32, one thread an element.
//
// Computes  C[m][n] = sum over k of A[m][k] B[k][n],  row-major, layout NN, any M, N, K.
// Idea      None yet: this is the product as its formula says it, and what the rungs above are compared with.
//
// Threads   A block is BN x BM threads (32 x 8); thread (x, y) computes C[tile_m + y][tile_n + x].
//           x runs along n, so that the 32 lanes of a warp read 32 neighbouring floats of a row of B (one
//           128-byte line) and write 32 neighbouring floats of C. They read the same float of A: a broadcast.
//           With x along m instead, each load of A and each store would touch 32 lines.
// Shared    None.
// Limit     Two loads for one FMA. A warp's FMA (64 FLOP) needs a line of B and a word of A: the load units, not
//           device memory, stand in the way, since the neighbours' reads are served by the L1 and L2 caches.
//           0.25 FLOP a byte loaded is the formula's intensity; 02 raises it by sharing what is loaded.

extern "C" __global__ void __launch_bounds__(BM * BN)
gemm(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C,
     int M, int N, int K, int lda, int ldb, int ldc) {
    const int n = blockIdx.x * BN + threadIdx.x;
    const int m = blockIdx.y * BM + threadIdx.y;
    if (m >= M || n >= N) return;  // the grid is rounded up to whole tiles

    // Offsets are 64 bits wide: M * lda passes 2^31 elements at 46341 x 46341.
    const float* a = A + (long long)m * lda;
    const float* b = B + n;
    float acc = 0.0f;
    for (int k = 0; k < K; ++k) {
        acc += a[k] * *b;
        b += ldb;
    }
    C[(long long)m * ldc + n] = acc;
}
