// Exercise 3: load four floats at a time.
//
// Task      The product C = A B in fp32, row-major, any M, N, K. This kernel is right; its tiles are loaded by load4,
//           which returns four neighbouring floats of a row by four loads. Make it one load of 16 bytes wherever that
//           is allowed.
// As        gemm/02_tiled: its parameters, its launch of 32 x 32 threads a block, BM = BN = BK = 32.
//
// Given     A tile has 1024 floats, 256 times four. Threads 0 to 255 load A's tile, threads 256 to 511 load B's; the
//           other half of the block only computes. Eight neighbouring threads fill a row of 32 floats, 128 bytes.
// Think of  A 16-byte load needs an address that is a multiple of 16. When is row + at one? lda may be any number. And
//           all four floats must lie inside the row: near its end, the single loads stay.
// Read      cu/gemm/02_tiled.cu, which this kernel grew from; cu/copy/01_vectorised.cu, for loads of 16 bytes.
//
// Check     lowlevel exercise 3
// Passing   It compiles; its machine code has a load of 16 bytes from global memory (LDG.E.128); and on a GPU every
//           element is right, also where rows are not a multiple of four floats.

static_assert(BM == 32 && BN == 32 && BK == 32, "eight threads fill a row of a tile");

// Floats at .. at + 3 of a row of `end` floats; zero, which adds nothing to any sum, where the row has ended.
__device__ float4 load4(const float* row, int at, int end) {
    float4 four;
    four.x = at + 0 < end ? row[at + 0] : 0.0f;
    four.y = at + 1 < end ? row[at + 1] : 0.0f;
    four.z = at + 2 < end ? row[at + 2] : 0.0f;
    four.w = at + 3 < end ? row[at + 3] : 0.0f;
    return four;
}

extern "C" __global__ void __launch_bounds__(BM * BN)
gemm(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C,
     int M, int N, int K, int lda, int ldb, int ldc) {
    __shared__ __align__(16) float As[BM][BK];
    __shared__ __align__(16) float Bs[BK][BN];

    const int x = threadIdx.x, y = threadIdx.y;
    const int m = blockIdx.y * BM + y;
    const int n = blockIdx.x * BN + x;

    const int thread = y * BN + x;
    const int row = thread % 256 / 8;    // the row of a tile that this thread helps to load
    const int column = thread % 8 * 4;   // and the first of its four floats there
    const float4 zero = {0.0f, 0.0f, 0.0f, 0.0f};

    float acc = 0.0f;
    for (int k_block = 0; k_block < K; k_block += BK) {
        if (thread < 256) {
            const int a_m = blockIdx.y * BM + row;
            const float4 four = a_m < M ? load4(A + (long long)a_m * lda, k_block + column, K) : zero;
            *reinterpret_cast<float4*>(&As[row][column]) = four;
        } else if (thread < 512) {
            const int b_k = k_block + row;
            const float4 four = b_k < K ? load4(B + (long long)b_k * ldb, blockIdx.x * BN + column, N) : zero;
            *reinterpret_cast<float4*>(&Bs[row][column]) = four;
        }
        __syncthreads();  // both tiles are whole before anyone reads them
#pragma unroll
        for (int k = 0; k < BK; ++k) acc += As[y][k] * Bs[k][x];
        __syncthreads();  // everyone is done reading before the next tiles overwrite these
    }
    if (m < M && n < N) C[(long long)m * ldc + n] = acc;
}
