// Exercise 1: finish the 32 x 32 tile.
//
// Task      The product C = A B in fp32, row-major, any M, N, K, by tiles in shared memory. The walk along K, the sum
//           and the store are here; at (1), (2) and (3) the loads of the two tiles and the barriers are missing.
// As        gemm/02_tiled: its parameters, its launch of 32 x 32 threads a block, BM = BN = BK = 32.
//
// Given     Thread (x, y) computes C[y][x] of its block's tile. Let it load A[y][x] and B[y][x] of each pair of tiles.
// Think of  Elements outside A or B: what can be stored in their place so that no sum changes? All threads must reach
//           every barrier, also those that have no element of C.
// Read      cu/gemm/01_naive.cu, for how A and B are addressed; docs/reading-a-kernel.md. cu/gemm/02_tiled.cu is one
//           solution: compare with it afterwards.
//
// Check     lowlevel exercise 1
// Passing   It compiles; both tiles are stored to shared memory (two STS), with two barriers (BAR) a step; and on a GPU
//           every element is right, on whole tiles and on odd sizes.

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
        // (1) Load this thread's element of each tile into As[y][x] and Bs[y][x]. Outside A or B nothing may be read.

        // (2) Nobody may read the tiles before they are whole.

#pragma unroll
        for (int k = 0; k < BK; ++k) acc += As[y][k] * Bs[k][x];

        // (3) Nobody may overwrite the tiles while others still read them.
    }
    if (m < M && n < N) C[(long long)m * ldc + n] = acc;
}
