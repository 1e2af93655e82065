// 20 TMA and wgmma: C = A B on Hopper's tensor cores, by engines that threads only start.
//
// Computes  C[m][n] = epilogue(sum over k of A[m][k] B[k][n]),  layouts NN, NT, TN, TT, any M, N, K.
// Idea      Up to 16 every thread copied its share of a tile, and every warp loaded fragments of it into registers. Now
//           one thread asks the copy engine (TMA) for a whole tile, which arrives swizzled and reports to a barrier;
//           and wgmma multiplies 64 x 128 straight from shared memory, started by four warps together. What is left to
//           the threads is to say where things are: a tensor map, a barrier, two descriptors.
//
// Tile      BM x BN x BK = 128 x 128 x 64, in groups of 8 rows of tiles, for L2.
// Threads   256: two warpgroups of 64 x 128, one above the other. A thread has 64 sums, two columns of every 8 in two
//           rows (wgmma.cuh), and stores them from there. Thread 0 also asks for the tiles.
// Shared    bytes 0 .. 16383       A tile   rows of 128 bytes, 8 of them a unit of the 128-byte swizzle: a row is one m
//                                           where A's rows run along k; else one k, in two blocks of 64 of m
//           bytes 16384 .. 32767   B tile   likewise
//           bytes 32768 .. 32775   the barrier that counts a tile's bytes
//           32784 bytes, dynamic, so that the tiles begin at multiples of 1024.
// Registers 64 sums, no fragments: nothing of A or B passes a register.
// Tails     Outside A and B the copy engine writes zeros, which count as bytes that arrived. Stores are guarded. Rows
//           that do not begin at multiples of 16 bytes TMA cannot take: `repack` copies such an operand first.
// Limit     There is one stage: the tensor core waits for each tile, the copy engine for each product. Only another
//           block on the same SM fills the gaps. 21 has several stages.

#include "mbarrier.cuh"
#include "repack.cuh"
#include "tile_order.cuh"
#include "wgmma_store.cuh"
#include "wgmma_tile.cuh"

constexpr int THREADS = BM / 64 * 128;
constexpr int RASTER = 8;  // rows of tiles in a group
constexpr bool A_MN_MAJOR = A_TRANSPOSED, B_MN_MAJOR = !B_TRANSPOSED;
constexpr unsigned A_BYTES = TILE_BYTES<BM, A_MN_MAJOR>, B_BYTES = TILE_BYTES<BN, B_MN_MAJOR>;
static_assert(BM % 64 == 0 && B_BYTES % 1024 == 0, "whole warpgroups; tiles begin at multiples of 1024 bytes");

extern "C" __global__ void __launch_bounds__(THREADS)
gemm(const __grid_constant__ TensorMap map_A, const __grid_constant__ TensorMap map_B, Output* __restrict__ C,
     int M, int N, int K, int ldc, Epilogue epilogue) {
    extern __shared__ __align__(1024) char shared[];
    const unsigned tile_a = shared_address(shared), tile_b = tile_a + A_BYTES, full = tile_b + B_BYTES;
    const TileIndex tile = tile_of_block(blockIdx.x, (M + BM - 1) / BM, (N + BN - 1) / BN, RASTER);
    const int tile_m = tile.m * BM, tile_n = tile.n * BN, k_blocks = (K + BK - 1) / BK;
    const int warpgroup = threadIdx.x / 128;

    if (threadIdx.x == 0) {
        mbarrier_init(full, 1);
        fence_mbarrier_init();  // the copy engine must find the barrier initialised
    }
    __syncthreads();  // nobody waits on a barrier that is not initialised

    const MatrixDescriptor a = matrix_descriptor(tile_a + warpgroup * WGMMA_BLOCK_BYTES);
    const MatrixDescriptor b = matrix_descriptor(tile_b);
    float acc[BN / 2];
    for (int k_block = 0; k_block < k_blocks; ++k_block) {
        if (threadIdx.x == 0) {
            mbarrier_arrive_expect(full, A_BYTES + B_BYTES);
            load_tile<BM, A_MN_MAJOR>(tile_a, &map_A, tile_m, k_block * BK, full);
            load_tile<BN, B_MN_MAJOR>(tile_b, &map_B, tile_n, k_block * BK, full);
        }
        mbarrier_wait(full, k_block % 2);  // each k-block is one phase

        wgmma_fence();
        multiply_tiles<BN, A_MN_MAJOR, B_MN_MAJOR>(acc, a, b, k_block > 0);
        wgmma_commit();
        wgmma_wait<0>();
        __syncthreads();  // both warpgroups have read the tiles: they may be written over
    }
    wgmma_fence_registers(acc);
    store_sums(acc, C, ldc, tile_m + warpgroup * 64, tile_n, M, N, epilogue);
}
