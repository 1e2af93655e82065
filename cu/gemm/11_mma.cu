// 11 mma: C = A B on tensor cores, the fragments in plain sight.
//
// Computes  C[m][n] = epilogue(sum over k of A[m][k] B[n][k]),  row-major, layout NT, any M, N, K; bf16 and fp16, sums
//           in fp32, or fp16 for fp16_acc16.
// Idea      mma.sync multiplies 16 x 8 x 16, and says which lane holds which element. So ldmatrix, which hands out rows
//           of 16 bytes just so, loads four 8 x 8 matrices in one instruction, and each lane knows its elements of C
//           and stores them from registers. A pad of 16 bytes a row spreads the rows over the banks, as in 10.
//
// Tile      BM x BN x BK = 128 x 128 x 64, 2 x 4 warps of WM x WN = 64 x 32: 4 x 4 times 16 x 8 sums each. As in 10.
// Threads   Thread t copies as in 10. For ldmatrix, lane l names row l % 16, k 8 (l / 16) + {0..7} of A's 16 x 16; and
//           row (l % 8) + 8 (l / 16), k 8 (l / 8 % 2) + {0..7} of B's, two columns of 8 at once. It holds rows
//           l / 4 + {0, 8} and columns 2 (l % 4) + {0, 1} of each 16 x 8 of C.
// Shared    bytes     0 .. 18431  As[128][72]   As[m][k], rows of 64 and a pad of 8: 36 words
//           bytes 18432 .. 36863  Bs[128][72]   Bs[n][k]
//           ldmatrix reads eight rows at a time: banks 36 r = 4 r modulo 32, all different. A store of 16 bytes is
//           served for eight lanes at a time: one row, 32 neighbouring banks.
// Tails     As in 10.
// Limit     Each k-block is a stop: load, wait, store, wait, multiply. While one block waits only the other block of
//           the SM multiplies; 13 has several tiles on their way instead. And the pad is a ninth of shared memory, its
//           rows start at no power of two, and a copy engine cannot write it: 12 does without.

#include "eights.cuh"
#include "ldmatrix.cuh"
#include "mma.cuh"
#include "pairs.cuh"
#include "shared.cuh"

constexpr int WARPS_N = BN / WN;
constexpr int THREADS = BM / WM * WARPS_N * 32;
constexpr int PITCH = BK + PAD;         // elements from row to row of a tile
constexpr int CHUNKS = BK / 8;          // of 16 bytes in a row of a tile
constexpr int ROWS = THREADS / CHUNKS;  // copied at once
static_assert(WM % MMA_M == 0 && WN % 16 == 0 && BK % MMA_K == 0 && PAD % 8 == 0, "a warp loads 16 x 16 at a time");
static_assert(THREADS % CHUNKS == 0 && BM % ROWS == 0 && BN % ROWS == 0, "whole passes of whole rows");

__shared__ __align__(128) Operand As[BM][PITCH];
__shared__ __align__(128) Operand Bs[BN][PITCH];

// WHOLE: eights are aligned, and each lies inside or outside as a whole.
template <bool WHOLE>
__device__ __forceinline__ void product(const Operand* A, const Operand* B, Output* C, int M, int N, int K, int lda,
                                        int ldb, int ldc, const Epilogue& epilogue) {
    const int tile_m = blockIdx.y * BM, tile_n = blockIdx.x * BN;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int warp_m = warp / WARPS_N * WM, warp_n = warp % WARPS_N * WN;
    const int row = threadIdx.x / CHUNKS, chunk = threadIdx.x % CHUNKS;
    auto a_place = [&](int i) { return reinterpret_cast<uint4*>(&As[row + i * ROWS][8 * chunk]); };
    auto b_place = [&](int i) { return reinterpret_cast<uint4*>(&Bs[row + i * ROWS][8 * chunk]); };

    Sums sums[WM / MMA_M][WN / MMA_N];
    for (int k_block = 0; k_block < K; k_block += BK) {
        uint4 a_eight[BM / ROWS], b_eight[BN / ROWS];
        const int k = k_block + 8 * chunk;
        if constexpr (WHOLE) {
            load_eights<ROWS>(a_eight, A, lda, tile_m + row, M, k, K);
            load_eights<ROWS>(b_eight, B, ldb, tile_n + row, N, k, K);
        }
        __syncthreads();  // everyone is done reading the tiles before these overwrite them
        if constexpr (WHOLE) {
#pragma unroll
            for (int i = 0; i < BM / ROWS; ++i) *a_place(i) = a_eight[i];
#pragma unroll
            for (int i = 0; i < BN / ROWS; ++i) *b_place(i) = b_eight[i];
        } else {
            gather_eights<ROWS, BM / ROWS>(A, lda, tile_m + row, M, k, K, a_place);
            gather_eights<ROWS, BN / ROWS>(B, ldb, tile_n + row, N, k, K, b_place);
        }
        __syncthreads();  // both tiles are whole before anyone reads them

#pragma unroll
        for (int step = 0; step < BK; step += MMA_K) {
            unsigned a[WM / MMA_M][4], b[WN / MMA_N][2];
#pragma unroll
            for (int i = 0; i < WM / MMA_M; ++i)
                ldmatrix_x4(a[i], shared_address(&As[warp_m + MMA_M * i + lane % 16][step + lane / 16 * 8]));
#pragma unroll
            for (int j = 0; j < WN / MMA_N; j += 2) {
                unsigned two[4];
                ldmatrix_x4(two, shared_address(&Bs[warp_n + MMA_N * j + lane % 8 + lane / 16 * 8]
                                                   [step + lane / 8 % 2 * 8]));
                b[j][0] = two[0], b[j][1] = two[1];
                b[j + 1][0] = two[2], b[j + 1][1] = two[3];
            }
#pragma unroll
            for (int i = 0; i < WM / MMA_M; ++i)
#pragma unroll
                for (int j = 0; j < WN / MMA_N; ++j) mma(sums[i][j], a[i], b[j]);
        }
    }

    const bool wide_c = aligned_to_4(C, ldc);
#pragma unroll
    for (int i = 0; i < WM / MMA_M; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half)
#pragma unroll
            for (int j = 0; j < WN / MMA_N; ++j) {
                const int m = tile_m + warp_m + MMA_M * i + 8 * half + lane / 4;
                const int n = tile_n + warp_n + MMA_N * j + lane % 4 * 2;
                store_pair(C, ldc, m, n, M, N, wide_c, sums[i][j].at(2 * half), sums[i][j].at(2 * half + 1), epilogue);
            }
}

// A and B are not __restrict__. Their loads would be ld.global.nc, of what nobody writes, and ptxas moves such loads
// behind the barrier; these are to be under way while the block waits there.
extern "C" __global__ void __launch_bounds__(THREADS, 2)
gemm(const Operand* A, const Operand* B, Output* __restrict__ C,
     int M, int N, int K, int lda, int ldb, int ldc, Epilogue epilogue) {
    if (aligned_to_16(A, lda) && aligned_to_16(B, ldb) && K % 8 == 0)
        product<true>(A, B, C, M, N, K, lda, ldb, ldc, epilogue);
    else
        product<false>(A, B, C, M, N, K, lda, ldb, ldc, epilogue);
}
