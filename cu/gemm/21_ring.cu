// 21 ring: C = A B on Hopper's tensor cores, several tiles on their way while one is multiplied.
//
// Computes  C[m][n] = epilogue(sum over k of A[m][k] B[k][n]),  layouts NN, NT, TN, TT, any M, N, K.
// Idea      20 asks for a tile when it has nothing left to multiply. Here STAGES pairs of tiles form a ring, each with
//           its own barrier. Thread 0 asks for the first STAGES k-blocks at once, and from then on for one more
//           whenever a stage has been read. wgmma is not waited for at once either: while k-block p is multiplied, the
//           stage of block p - 1 is given back.
//
// Tile      BM x BN x BK = 128 x 128 x 64, in groups of 8 rows of tiles, for L2.
// Threads   256: two warpgroups of 64 x 128, one above the other. A thread has 64 sums, two columns of every 8 in two
//           rows (wgmma.cuh), and stores them from there. Thread 0 also asks for the tiles.
// Shared    STAGES x 32768 bytes    A tile and B tile, 16384 bytes each: rows of 128 bytes, swizzled, 8 of them a unit;
//                                   a row is one m (n) where rows run along k, else one k, in blocks of 64 of m (n)
//           STAGES x 8 bytes        the barriers that count each stage's bytes; 8 more a stage are left
//           98352 bytes with 3 stages, dynamic: two blocks fit an SM.
// Pipeline  k-block p                                      stage       its barrier's phase
//           wait for its bytes                             p % STAGES  p / STAGES, of which the parity counts
//           start its products; wait for those of p - 1
//           barrier: both warpgroups have done so
//           thread 0 asks for block p - 1 + STAGES         that of p - 1
// Registers 64 sums.
// Tails     Outside A and B the copy engine writes zeros, which count as bytes that arrived. With fewer k-blocks than
//           stages the rest of the ring stays empty. Stores are guarded. Rows that do not begin at multiples of 16
//           bytes TMA cannot take: `repack` copies such an operand first.
// Limit     Both warpgroups meet at every k-block, and wait for thread 0 to have asked; while C is stored the tensor
//           core rests, unless another block has work for it. 22 gives the asking to a warp of its own.

#include "mbarrier.cuh"
#include "repack.cuh"
#include "tile_order.cuh"
#include "wgmma_store.cuh"
#include "wgmma_tile.cuh"

constexpr int THREADS = BM / 64 * 128;
constexpr int RASTER = 8;  // rows of tiles in a group
constexpr bool A_MN_MAJOR = A_TRANSPOSED, B_MN_MAJOR = !B_TRANSPOSED;
constexpr unsigned A_BYTES = TILE_BYTES<BM, A_MN_MAJOR>, B_BYTES = TILE_BYTES<BN, B_MN_MAJOR>;
constexpr unsigned STAGE_BYTES = A_BYTES + B_BYTES;
static_assert(BM % 64 == 0 && B_BYTES % 1024 == 0, "whole warpgroups; tiles begin at multiples of 1024 bytes");
static_assert(STAGES >= 2, "one stage is multiplied while others are on their way");

extern "C" __global__ void __launch_bounds__(THREADS)
gemm(const __grid_constant__ TensorMap map_A, const __grid_constant__ TensorMap map_B, Output* __restrict__ C,
     int M, int N, int K, int ldc, Epilogue epilogue) {
    extern __shared__ __align__(1024) char shared[];
    const unsigned ring = shared_address(shared), full = ring + STAGES * STAGE_BYTES;
    const TileIndex tile = tile_of_block(blockIdx.x, (M + BM - 1) / BM, (N + BN - 1) / BN, RASTER);
    const int tile_m = tile.m * BM, tile_n = tile.n * BN, k_blocks = (K + BK - 1) / BK;
    const int warpgroup = threadIdx.x / 128;

    auto load = [&](int k_block, int stage) {
        const unsigned tile_a = ring + stage * STAGE_BYTES, barrier = full + stage * 8;
        mbarrier_arrive_expect(barrier, STAGE_BYTES);
        load_tile<BM, A_MN_MAJOR>(tile_a, &map_A, tile_m, k_block * BK, barrier);
        load_tile<BN, B_MN_MAJOR>(tile_a + A_BYTES, &map_B, tile_n, k_block * BK, barrier);
    };
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; ++stage) mbarrier_init(full + stage * 8, 1);
        fence_mbarrier_init();  // the copy engine must find the barriers initialised
        for (int k_block = 0; k_block < min(STAGES, k_blocks); ++k_block) load(k_block, k_block);
    }
    __syncthreads();  // nobody waits on a barrier that is not initialised

    const MatrixDescriptor a = matrix_descriptor(ring + warpgroup * WGMMA_BLOCK_BYTES);
    const MatrixDescriptor b = matrix_descriptor(ring + A_BYTES);
    float acc[BN / 2];
    int stage = 0, before = STAGES - 1;
    unsigned parity = 0;
    for (int k_block = 0; k_block < k_blocks; ++k_block) {
        mbarrier_wait(full + stage * 8, parity);
        wgmma_fence();
        multiply_tiles<BN, A_MN_MAJOR, B_MN_MAJOR>(acc, a.advance(stage * STAGE_BYTES),
                                                   b.advance(stage * STAGE_BYTES), k_block > 0);
        wgmma_commit();
        wgmma_wait<1>();  // this warpgroup has read the stage before this one
        __syncthreads();  // and so has the other
        const int next = k_block - 1 + STAGES;
        if (threadIdx.x == 0 && k_block > 0 && next < k_blocks) load(next, before);
        before = stage;
        if (++stage == STAGES) stage = 0, parity ^= 1;
    }
    wgmma_wait<0>();
    wgmma_fence_registers(acc);
    store_sums(acc, C, ldc, tile_m + warpgroup * 64, tile_n, M, N, epilogue);
}
