// 07 async: C = A B in fp32, the next tiles on their way while this one is multiplied.
//
// Computes  C[m][n] = epilogue(sum over k of A[m][k] B[k][n]),  row-major, layout NN, any M, N, K.
// Idea      cp.async copies from global to shared memory without passing a register, and nobody waits for it: the block
//           starts the copies of tile p, multiplies tile p - 1, and only then waits. Two buffers, one barrier a tile.
//
// Tile      BM x BN x BK = 128 x 128 x 8, a block of 256 threads, 8 x 8 elements each.
// Threads   Thread t computes rows 4 (t / 16) + {0..3, 64..67} and columns 4 (t % 16) + {0..3, 64..67}, as in 06. It
//           copies A[t / 8 + {0, 32, 64, 96}][t % 8], 4 bytes each, since A's tile is transposed on its way; and 4
//           columns of B's row t / 32, 16 bytes at once where B's rows are aligned.
// Shared    bytes     0 ..  8447  As[2][8][132]   As[buffer][k][m], transposed, a pad of 4 words
//           bytes  8448 .. 16639  Bs[2][8][128]   Bs[buffer][k][n]
//           A warp's copies into As are 8 k and 4 rows: banks 4 k + m, all different.
// Tails     cp.async writes zeros for the bytes that it is told not to read. C as in 06.
// Limit     A k-block of 8 is 512 FMAs a thread, for the block 1024 clocks of the 128 FMA units of an sm_90 SM: enough
//           for one tile's latency, not more. Shared memory is read 16 words for 64 FMAs. Rung 08 has larger tiles,
//           more of them in flight, and each warp a square.

#include "cp_async.cuh"
#include "epilogue.cuh"
#include "fours.cuh"

constexpr int THREADS = 256;
static_assert(BM == 128 && BN == 128 && BK == 8, "a thread copies four elements of A and four of B, and owns 8 x 8");

extern "C" __global__ void __launch_bounds__(THREADS, 2)
gemm(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C,
     int M, int N, int K, int lda, int ldb, int ldc, Epilogue epilogue) {
    __shared__ __align__(16) float As[2][BK][BM + 4];
    __shared__ __align__(16) float Bs[2][BK][BN];

    const int tile_m = blockIdx.y * BM, tile_n = blockIdx.x * BN;
    const int thread_m = threadIdx.x / 16 * 4, thread_n = threadIdx.x % 16 * 4;
    const int a_m = threadIdx.x / 8, a_k = threadIdx.x % 8;
    const int b_k = threadIdx.x / 32, lane = threadIdx.x % 32;
    const bool wide_b = aligned_to_16(B, ldb);

    const float* a_from = A + (long long)(tile_m + a_m) * lda + a_k;
    const float* b_from = B + (long long)b_k * ldb + tile_n;

    // Starts the copies of the next pair of tiles. Where nothing is read the address is the matrix's own.
    auto copy_tiles = [&](int k_block, int buffer) {
        const int rows = k_block + a_k < K ? M - tile_m - a_m : 0;  // of A, from this thread's first on
#pragma unroll
        for (int m = 0; m < BM; m += THREADS / 8)
            cp_async_4(shared_address(&As[buffer][a_k][a_m + m]), m < rows ? a_from + (long long)m * lda : A,
                       m < rows ? 4 : 0);
        const int columns = k_block + b_k < K ? N - tile_n : 0;  // of B, from the tile's first on
        if (wide_b) {
            const int count = min(max(columns - 4 * lane, 0), 4);
            cp_async_16(shared_address(&Bs[buffer][b_k][4 * lane]), count ? b_from + 4 * lane : B, 4 * count);
        } else {
#pragma unroll
            for (int pass = 0; pass < BN; pass += 32) {
                const int n = pass + lane;
                cp_async_4(shared_address(&Bs[buffer][b_k][n]), n < columns ? b_from + n : B, n < columns ? 4 : 0);
            }
        }
        cp_async_commit();
        a_from += BK;
        b_from += (long long)BK * ldb;
    };

    float acc[8][8] = {};
    auto multiply = [&](int buffer) {
#pragma unroll
        for (int k = 0; k < BK; ++k) {
            float a[8], b[8];
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const float* a_four = &As[buffer][k][thread_m + 64 * half];
                const float* b_four = &Bs[buffer][k][thread_n + 64 * half];
                *reinterpret_cast<float4*>(&a[4 * half]) = *reinterpret_cast<const float4*>(a_four);
                *reinterpret_cast<float4*>(&b[4 * half]) = *reinterpret_cast<const float4*>(b_four);
            }
#pragma unroll
            for (int i = 0; i < 8; ++i)
#pragma unroll
                for (int j = 0; j < 8; ++j) acc[i][j] += a[i] * b[j];
        }
    };

    // Pass p copies tile p and multiplies tile p - 1; the last copies nothing.
    int buffer = 0;
    for (int k_block = 0; k_block < K + BK; k_block += BK) {
        copy_tiles(k_block, buffer);
        buffer ^= 1;
        if (k_block > 0) multiply(buffer);
        cp_async_wait<0>();
        __syncthreads();  // the tile is whole, and everyone is done with the one before it
    }

    const bool wide_c = aligned_to_16(C, ldc);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        const int m = tile_m + thread_m + i / 4 * 64 + i % 4;
        if (m >= M) continue;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int n = tile_n + thread_n + 64 * half;
            float value[4];
#pragma unroll
            for (int j = 0; j < 4; ++j) value[j] = n + j < N ? epilogue(acc[i][4 * half + j], m, n + j) : 0.0f;
            store_four(C + (long long)m * ldc, n, N, wide_c, make_float4(value[0], value[1], value[2], value[3]));
        }
    }
}
