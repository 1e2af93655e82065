// 05 large register tile: C = A B in fp32, 8 x 8 sums a thread, an epilogue on the way out.
//
// Computes  C[m][n] = epilogue(sum over k of A[m][k] B[k][n]),  row-major, layout NN, any M, N, K.
// Idea      8 x 8 elements a thread: 16 words of shared memory for 64 FMAs, a quarter of a word each, half of 04's; and
//           a 128 x 128 tile reads global memory half as often as a 64 x 64 one.
//
// Tile      BM x BN x BK = 128 x 128 x 8, a block of 256 threads, TM x TN = 8 x 8 elements each.
// Threads   Thread t computes rows 8 (t / 16) .. + 7 and columns 8 (t % 16) .. + 7 of the tile. For the loads the block
//           walks over each tile in memory order, 4 elements of A and 4 of B a thread.
// Shared    bytes    0 ..  4607  As[128][9]   As[m][k], one word of pad, as in 04   (PAD = 0: 4096 bytes)
//           then         4096    Bs[8][128]   Bs[k][n]
//           A thread's 8 columns are read as two times 16 bytes, 32 bytes from its neighbour's: of the 8 lanes that
//           are served at once, the first and the fifth want the same banks. Rung 06 deals the columns out otherwise.
// Tails     An element outside A or B is loaded as zero; one outside C is not stored.
// Limit     On their way into shared memory the tiles still pass word by word: 8 loads and 8 stores of 4 bytes a
//           k-block, and all of C leaves in stores of 4 bytes. Rung 06 moves four at a time. And large tiles are few:
//           1024 x 1024 has 64 of them, 10.6 TFLOP/s on an H200 where 04 has 18.4. Rung 08 chooses its tile by shape.

#include "epilogue.cuh"

static_assert(TM > 0 && TN > 0 && BM % TM == 0 && BN % TN == 0, "a thread owns whole TM x TN elements");
constexpr int THREADS_N = BN / TN;
constexpr int THREADS = BM / TM * THREADS_N;
static_assert(BM * BK % THREADS == 0 && BK * BN % THREADS == 0, "every thread loads as many elements");

extern "C" __global__ void __launch_bounds__(THREADS, 2)
gemm(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C,
     int M, int N, int K, int lda, int ldb, int ldc, Epilogue epilogue) {
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
            if (m < M && n < N) C[(long long)m * ldc + n] = epilogue(acc[i][j], m, n);
        }
}
