// 12 swizzle: C = A B on tensor cores, tiles without a pad and without bank conflicts.
//
// Computes  C[m][n] = epilogue(sum over k of A[m][k] B[n][k]),  row-major, layout NT, any M, N, K; bf16 and fp16, sums
//           in fp32, or fp16 for fp16_acc16.
// Idea      11 with an XOR where it had a pad: chunk c of 16 bytes of row r lies at place c ^ r % 8 of its row
//           (swizzle.cuh). Who stores and who loads say so alike; no byte is spent.
//
// Tile      BM x BN x BK = 128 x 128 x 64, 2 x 4 warps of WM x WN = 64 x 32: 4 x 4 times 16 x 8 sums each. As in 11.
// Threads   As in 11: what a thread copies, loads and holds is the same, only where it lies is not.
// Shared    bytes     0 .. 16383  As[128][64]   128 bytes a row, A[m][k .. k + 7] at 128 m + 16 (k / 8 ^ m % 8)
//           bytes 16384 .. 32767  Bs[128][64]   the same of B[n][k]
//           ldmatrix reads chunk c of eight rows, at c ^ 0 .. c ^ 7: eight different groups of 4 banks. A store serves
//           the eight chunks of one row at a time: in another order, still all the banks.
// Tails     As in 10.
// Limit     Not the banks: 11 had no conflict either. Where 11 adds constants to one address, an operand here has four,
//           made before the loop, whose instructions are the same: expect the same time. What is won is a ninth of
//           shared memory, that is room for another stage in 13 and 14, and rows of 128 bytes in the order in which
//           Hopper's copy engine writes them and its wgmma reads them. What limits is the stop at each k-block, as in
//           11: 13 is about that.

#include "eights.cuh"
#include "ldmatrix.cuh"
#include "mma.cuh"
#include "pairs.cuh"
#include "shared.cuh"
#include "swizzle.cuh"

constexpr int WARPS_N = BN / WN;
constexpr int THREADS = BM / WM * WARPS_N * 32;
constexpr int ROW_BYTES = BK * sizeof(Operand);
constexpr int CHUNKS = BK / 8;          // of 16 bytes in a row of a tile
constexpr int ROWS = THREADS / CHUNKS;  // copied at once
static_assert(WM % MMA_M == 0 && WN % 16 == 0 && BK % MMA_K == 0, "a warp loads 16 x 16 at a time");
static_assert(THREADS % CHUNKS == 0 && BM % ROWS == 0 && BN % ROWS == 0, "whole passes of whole rows");
static_assert(ROWS % 8 == 0, "all rows of a thread are swizzled alike");

__shared__ __align__(128) unsigned char As[BM * ROW_BYTES];
__shared__ __align__(128) unsigned char Bs[BN * ROW_BYTES];

// WHOLE: eights are aligned, and each lies inside or outside as a whole.
template <bool WHOLE>
__device__ __forceinline__ void product(const Operand* A, const Operand* B, Output* C, int M, int N, int K, int lda,
                                        int ldb, int ldc, const Epilogue& epilogue) {
    const int tile_m = blockIdx.y * BM, tile_n = blockIdx.x * BN;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int warp_m = warp / WARPS_N * WM, warp_n = warp % WARPS_N * WN;
    const int row = threadIdx.x / CHUNKS, chunk = threadIdx.x % CHUNKS;
    const int place = swizzled<ROW_BYTES>(row, chunk);  // and in every 8th row alike
    auto a_place = [&](int i) { return reinterpret_cast<uint4*>(&As[place + i * ROWS * ROW_BYTES]); };
    auto b_place = [&](int i) { return reinterpret_cast<uint4*>(&Bs[place + i * ROWS * ROW_BYTES]); };
    // What this lane names to ldmatrix for the first 16 k. The next 16 are two chunks on, c + 2 for a c of 0 or 1, and
    // that is c ^ 2; and XORs may be done in any order. So only the k-step is left to XOR, and rows to add.
    const unsigned a_lane = shared_address(As) + swizzled<ROW_BYTES>(warp_m + lane % 16, lane / 16);
    const unsigned b_lane = shared_address(Bs) + swizzled<ROW_BYTES>(warp_n + lane % 8 + lane / 16 * 8, lane / 8 % 2);

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
                ldmatrix_x4(a[i], (a_lane ^ step * (int)sizeof(Operand)) + MMA_M * i * ROW_BYTES);
#pragma unroll
            for (int j = 0; j < WN / MMA_N; j += 2) {
                unsigned two[4];
                ldmatrix_x4(two, (b_lane ^ step * (int)sizeof(Operand)) + MMA_N * j * ROW_BYTES);
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
