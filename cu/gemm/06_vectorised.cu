// 06 vectorised: C = A B in fp32, 16 bytes at a time between all memories.
//
// Computes  C[m][n] = epilogue(sum over k of A[m][k] B[k][n]),  row-major, layout NN, any M, N, K.
// Idea      A load of 16 bytes is one instruction, like one of 4. So everything moves as float4: tiles from global
//           memory, fragments from shared memory, C on its way out. For that A's tile lies transposed, so that the 4
//           rows a thread needs at one k are neighbours, and a thread's 8 x 8 elements are four 4 x 4 quarters, so that
//           8 neighbouring lanes read 128 neighbouring bytes. The price: the four floats of A that a thread loaded lie
//           apart in the transposed tile, and are stored there one by one.
//
// Tile      BM x BN x BK = 128 x 128 x 8, a block of 256 threads, 8 x 8 elements each.
// Threads   Thread t computes rows 4 (t / 16) + {0..3, 64..67} and columns 4 (t % 16) + {0..3, 64..67} of the tile. It
//           loads A[t / 2][4 (t % 2) ..] and B[t / 32][4 (t % 32) ..], four elements each.
// Shared    bytes    0 ..  4223  As[8][132]   As[k][m], transposed, a pad of 4 words
//           bytes 4224 ..  8319  Bs[8][128]   Bs[k][n]
//           A warp stores As for 16 rows and two k that are 4 apart: 4 x 132 words, 16 banks, so no two lanes meet.
//           With rows of 128 words they all would, two by two. A pad of 4 keeps rows aligned to 16 bytes.
// Tails     Where A, B or C, or their leading dimensions, are not multiples of 16 bytes, or a four crosses an edge, its
//           elements move one by one: slower, and right.
// Limit     A block waits for its loads of global memory, then computes, then waits: two barriers for every 8 k. Rung
//           07 loads the next tiles while it computes.

#include "epilogue.cuh"
#include "fours.cuh"

constexpr int THREADS = 256;
static_assert(BM == 128 && BN == 128 && BK == 8, "a thread loads one float4 of A and one of B, and owns 8 x 8");

extern "C" __global__ void __launch_bounds__(THREADS, 2)
gemm(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C,
     int M, int N, int K, int lda, int ldb, int ldc, Epilogue epilogue) {
    __shared__ __align__(16) float As[BK][BM + 4];
    __shared__ __align__(16) float Bs[BK][BN];

    const int tile_m = blockIdx.y * BM, tile_n = blockIdx.x * BN;
    const int thread_m = threadIdx.x / 16 * 4, thread_n = threadIdx.x % 16 * 4;
    const int a_m = threadIdx.x / 2, a_k = threadIdx.x % 2 * 4;
    const int b_k = threadIdx.x / 32, b_n = threadIdx.x % 32 * 4;
    const bool wide_a = aligned_to_16(A, lda), wide_b = aligned_to_16(B, ldb), wide_c = aligned_to_16(C, ldc);
    // A row outside the matrix ends where it starts, so all of it is zero.
    const float* a_row = A + (long long)min(tile_m + a_m, M - 1) * lda;
    const int a_end = tile_m + a_m < M ? K : 0;

    float acc[8][8] = {};
    for (int k_block = 0; k_block < K; k_block += BK) {
        const int k = k_block + b_k;
        const float4 a_four = load_four(a_row, k_block + a_k, a_end, wide_a);
        const float4 b_four = load_four(B + (long long)min(k, K - 1) * ldb, tile_n + b_n, k < K ? N : 0, wide_b);
        As[a_k + 0][a_m] = a_four.x;
        As[a_k + 1][a_m] = a_four.y;
        As[a_k + 2][a_m] = a_four.z;
        As[a_k + 3][a_m] = a_four.w;
        *reinterpret_cast<float4*>(&Bs[b_k][b_n]) = b_four;
        __syncthreads();  // both tiles are whole before anyone reads them
#pragma unroll
        for (int k = 0; k < BK; ++k) {
            float a[8], b[8];
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                *reinterpret_cast<float4*>(&a[4 * half]) = *reinterpret_cast<float4*>(&As[k][thread_m + 64 * half]);
                *reinterpret_cast<float4*>(&b[4 * half]) = *reinterpret_cast<float4*>(&Bs[k][thread_n + 64 * half]);
            }
#pragma unroll
            for (int i = 0; i < 8; ++i)
#pragma unroll
                for (int j = 0; j < 8; ++j) acc[i][j] += a[i] * b[j];
        }
        __syncthreads();  // everyone is done reading before the next tiles overwrite these
    }

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
