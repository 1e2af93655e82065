// 04 register tile: C = A B in fp32, 4 x 4 sums a thread.
//
// Computes  C[m][n] = sum over k of A[m][k] B[k][n],  row-major, layout NN, any M, N, K.
// Idea      A thread that computes one element reads two words of shared memory for each FMA. A thread that computes
//           4 x 4 reads 4 of A and 4 of B into registers and does 16 FMAs with them: half a word an FMA.
//
// Tile      BM x BN x BK = 64 x 64 x 8, a block of 256 threads, TM x TN = 4 x 4 elements each.
// Threads   Thread t computes rows 4 (t / 16) .. + 3 and columns 4 (t % 16) .. + 3 of the tile: a warp has two groups
//           of rows and all 64 columns. For the loads the block walks over each tile in memory order, 2 elements of A
//           and 2 of B a thread.
// Shared    bytes    0 ..  2303  As[64][9]    As[m][k], one word of pad   (PAD = 0: 2048 bytes)
//           then         2048    Bs[8][64]    Bs[k][n]
//           Here padding has something to cure. A warp reads As[4 r + i][k] for two r that differ by one: two words,
//           4 x 8 = 32 words apart without the pad, in the same bank, and each read takes two wavefronts. Rows of 9
//           words put them 36 apart, 4 banks. The price: a warp stores 4 rows of 8 words, and in rows of 9 the last
//           three words meet the first three, two wavefronts instead of one, for 2 stores a k-block. The compiler
//           reads 16 bytes at a time in both: a thread's 4 rows lie one after the other, 32 or 36 words, and start at
//           a multiple of 16 bytes. Both configurations are in the catalog: on an H200 they are as fast as each other
//           at 1024 (18.4 and 18.3 TFLOP/s).
// Tails     An element outside A or B is loaded as zero; one outside C is not stored.
// Limit     Loads of global memory and of shared memory alternate with the FMAs, with two barriers between: while one
//           unit works the others wait, unless another block of the SM fills in. BK = 64 has an eighth of the barriers,
//           and at 1024 on an H200 1.5 times the rate. A larger tile needs fewer loads: rung 05.

static_assert(TM > 0 && TN > 0 && BM % TM == 0 && BN % TN == 0, "a thread owns whole TM x TN elements");
constexpr int THREADS_N = BN / TN;
constexpr int THREADS = BM / TM * THREADS_N;
static_assert(BM * BK % THREADS == 0 && BK * BN % THREADS == 0, "every thread loads as many elements");

extern "C" __global__ void __launch_bounds__(THREADS)
gemm(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C,
     int M, int N, int K, int lda, int ldb, int ldc) {
    __shared__ float As[BM][BK + PAD];
    __shared__ float Bs[BK][BN];

    const int tile_m = blockIdx.y * BM, tile_n = blockIdx.x * BN;
    const int thread_m = threadIdx.x / THREADS_N * TM, thread_n = threadIdx.x % THREADS_N * TN;

    float acc[TM][TN] = {};
    for (int k_block = 0; k_block < K; k_block += BK) {
#pragma unroll
        for (int pass = 0; pass < BM * BK; pass += THREADS) {
            const int m = (pass + threadIdx.x) / BK, k = (pass + threadIdx.x) % BK;
            const bool inside = tile_m + m < M && k_block + k < K;
            As[m][k] = inside ? A[(long long)(tile_m + m) * lda + k_block + k] : 0.0f;
        }
#pragma unroll
        for (int pass = 0; pass < BK * BN; pass += THREADS) {
            const int k = (pass + threadIdx.x) / BN, n = (pass + threadIdx.x) % BN;
            const bool inside = k_block + k < K && tile_n + n < N;
            Bs[k][n] = inside ? B[(long long)(k_block + k) * ldb + tile_n + n] : 0.0f;
        }
        __syncthreads();  // both tiles are whole before anyone reads them
#pragma unroll
        for (int k = 0; k < BK; ++k) {
            float a[TM], b[TN];
#pragma unroll
            for (int i = 0; i < TM; ++i) a[i] = As[thread_m + i][k];
#pragma unroll
            for (int j = 0; j < TN; ++j) b[j] = Bs[k][thread_n + j];
#pragma unroll
            for (int i = 0; i < TM; ++i)
#pragma unroll
                for (int j = 0; j < TN; ++j) acc[i][j] += a[i] * b[j];
        }
        __syncthreads();  // everyone is done reading before the next tiles overwrite these
    }

#pragma unroll
    for (int i = 0; i < TM; ++i)
#pragma unroll
        for (int j = 0; j < TN; ++j) {
            const int m = tile_m + thread_m + i, n = tile_n + thread_n + j;
            if (m < M && n < N) C[(long long)m * ldc + n] = acc[i][j];
        }
}
