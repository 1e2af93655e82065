// 10 WMMA: C = A B on tensor cores, by the instructions that hide how.
//
// Computes  C[m][n] = epilogue(sum over k of A[m][k] B[n][k]),  row-major, layout NT, any M, N, K; bf16 and fp16, sums
//           in fp32.
// Idea      A warp multiplies 16 x 16 x 16 at once: wmma.load fills a fragment from shared memory, wmma.mma adds the
//           product of two to a third, wmma.store lays that down. Who holds what is not said and need not be known.
//
// Tile      BM x BN x BK = 128 x 128 x 64, 2 x 4 warps of WM x WN = 64 x 32: 4 x 2 fragments of sums each.
// Threads   Thread t copies 16 bytes, k 8 (t % 8) + {0..7}, of rows t / 8 + {0, 32, 64, 96} of A and of B. At the end a
//           warp lays down 16 rows of its sums at a time, and lane l finishes columns 2 (l % 16), + 1 of rows
//           l / 16 + {0, 2, .. 14}.
// Shared    bytes     0 .. 18431  As[128][72]   As[m][k], rows of 64 and a pad of 8: 144 bytes
//           bytes 18432 .. 36863  Bs[128][72]   Bs[n][k]
//           ptxas makes ldmatrix of wmma.load, with 11's addresses: eight rows of 16 bytes at a time, which the pad
//           spreads over the banks. With PAD = 0, the second configuration, rows are 128 bytes, all eight begin in the
//           same bank, and every load takes eight passes.
//           after the last k-block, in the same place, for each warp 16 x 40 sums: rows of 32 and a pad of 8, since
//           wmma.store's rows, of 8 bytes a lane, would meet in the same banks.
// Tails     Where rows of A and B are aligned to 16 bytes and K is a multiple of 8, what is loaded lies inside or
//           outside as a whole, and is zero outside; else element by element. C in pairs where they are aligned to 4
//           bytes and both inside.
// Limit     Each k-block is a stop: load, wait, store, wait, multiply; 13 is about that. WMMA's own: sums must go
//           through shared memory on their way to C; ptxas makes an address for each fragment, in its own register,
//           where one and constants would do; and as a fragment is 16 rows at one stride, only a pad can spread them
//           over the banks, not 12's XOR. 11 has all that in its own hands.

#include "eights.cuh"
#include "pairs.cuh"
#include "shared.cuh"
#include "wmma.cuh"

constexpr int WARPS_N = BN / WN;
constexpr int THREADS = BM / WM * WARPS_N * 32;
constexpr int PITCH = BK + PAD;         // elements from row to row of a tile
constexpr int CHUNKS = BK / 8;          // of 16 bytes in a row of a tile
constexpr int ROWS = THREADS / CHUNKS;  // copied at once
constexpr int STRIP_PITCH = WN + 8;
static_assert(WM % 16 == 0 && WN % 16 == 0 && BK % 16 == 0 && PAD % 8 == 0, "fragments are 16 x 16, aligned");
static_assert(THREADS % CHUNKS == 0 && BM % ROWS == 0 && BN % ROWS == 0, "whole passes of whole rows");
constexpr int TILES_BYTES = (BM + BN) * PITCH * sizeof(Operand);
constexpr int STRIPS_BYTES = THREADS / 32 * 16 * STRIP_PITCH * sizeof(float);

__shared__ __align__(128) unsigned char shared[TILES_BYTES > STRIPS_BYTES ? TILES_BYTES : STRIPS_BYTES];

// WHOLE: eights are aligned, and each lies inside or outside as a whole.
template <bool WHOLE>
__device__ __forceinline__ void product(const Operand* A, const Operand* B, Output* C, int M, int N, int K, int lda,
                                        int ldb, int ldc, const Epilogue& epilogue) {
    Operand(*As)[PITCH] = reinterpret_cast<Operand(*)[PITCH]>(shared);
    Operand(*Bs)[PITCH] = As + BM;

    const int tile_m = blockIdx.y * BM, tile_n = blockIdx.x * BN;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int warp_m = warp / WARPS_N * WM, warp_n = warp % WARPS_N * WN;
    const int row = threadIdx.x / CHUNKS, chunk = threadIdx.x % CHUNKS;
    auto a_place = [&](int i) { return reinterpret_cast<uint4*>(&As[row + i * ROWS][8 * chunk]); };
    auto b_place = [&](int i) { return reinterpret_cast<uint4*>(&Bs[row + i * ROWS][8 * chunk]); };

    WmmaSums sums[WM / 16][WN / 16];
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

        // Two steps at a time: the addresses of four, a register a fragment, would not fit into 128 with the rest.
#pragma unroll 2
        for (int step = 0; step < BK; step += 16) {
            WmmaOperand a[WM / 16], b[WN / 16];
#pragma unroll
            for (int i = 0; i < WM / 16; ++i)
                wmma_load_a(a[i], shared_address(&As[warp_m + 16 * i][step]), PITCH);
#pragma unroll
            for (int j = 0; j < WN / 16; ++j)
                wmma_load_b(b[j], shared_address(&Bs[warp_n + 16 * j][step]), PITCH);
#pragma unroll
            for (int i = 0; i < WM / 16; ++i)
#pragma unroll
                for (int j = 0; j < WN / 16; ++j) wmma_mma(sums[i][j], a[i], b[j]);
        }
    }

    __syncthreads();  // nobody needs the tiles any more
    const bool wide_c = aligned_to_4(C, ldc);
    float(*strip)[STRIP_PITCH] = reinterpret_cast<float(*)[STRIP_PITCH]>(shared) + warp * 16;
#pragma unroll
    for (int i = 0; i < WM / 16; ++i) {
#pragma unroll
        for (int j = 0; j < WN / 16; ++j) wmma_store(shared_address(&strip[0][16 * j]), sums[i][j], STRIP_PITCH);
        __syncwarp();  // the warp's strip is whole
#pragma unroll
        for (int pair = lane; pair < 16 * WN / 2; pair += 32) {
            const int m = pair / (WN / 2), n = pair % (WN / 2) * 2;
            const float2 two = *reinterpret_cast<const float2*>(&strip[m][n]);
            store_pair(C, ldc, tile_m + warp_m + 16 * i + m, tile_n + warp_n + n, M, N, wide_c, two.x, two.y, epilogue);
        }
        __syncwarp();  // and has been read, before the next overwrites it
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
