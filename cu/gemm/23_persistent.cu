// 23 persistent: C = A B on Hopper's tensor cores; a block an SM, which takes tile after tile.
//
// Computes  C[m][n] = epilogue(sum over k of A[m][k] B[k][n]),  row-major, layouts NT, NN, TN, TT; bf16 and fp16, sums
//           in fp32; any M, N, K.
// Idea      22's blocks end with their tile, and the next one starts with an empty ring. Here a block stays, and takes
//           every gridDim.x-th tile. Its producer goes on with the next tile's k-blocks while the consumers finish this
//           one: the ring does not know where a tile ends. The consumers leave their sums, packed, to the copy engine,
//           and multiply on while it stores them: they wait for room to pack into, and for nothing else.
//           And which tiles run at once is the kernel's to say: groups of GROUP rows of tiles, down each column of a
//           group. 128 blocks then read 2048 rows of A and 2048 of B; what L2 fetches for one serves 8 or 16.
//
// Tile      BM x BN x BK = 128 x 256 x 64 by default, GROUP = 16. There are as few blocks as need no more rounds: for
//           8192 x 8192 128 on 132 SMs, since 2048 tiles are 16 rounds with either, and then each is one rectangle.
// Threads   As in 22: threads 0 .. 255 multiply, thread 256 copies; registers as there.
// Shared    bytes      0 .. 196607  4 stages of A, 16384 bytes, and B, 32768
//           bytes 196608 .. 229375  for each of 8 warps two boxes of 16 rows of 64 columns of C
//                                   (cu/include/staged_store.cuh)
//           bytes 229376 .. 229439  full of each stage, 8 bytes, then empty of each
//
// Barriers  As in 22, but rounds of the ring count over all tiles of a block: both roles walk the same tiles and keep
//           their places from one to the next. (If each tile began at stage 0 with parity 0, they would wait for
//           phases that are long over, unless every K filled whole pairs of rounds.)
//             full[s]    1 arrival and 49152 bytes. Consumers wait for parity p.
//             empty[s]   8 arrivals. The producer waits for parity 1 - p.
//           The stage of a tile's last k-block is released too: the producer wants it for the next.
// Order     - Init, copies and multiplication as in 22.
//           - stmatrix writes by the generic proxy what the copy engine reads by the async one. So every lane executes
//             fence.proxy.async behind its writes, then all meet at __syncwarp(), then lane 0 asks for the store. Boxes
//             are a warp's own: no larger barrier is needed.
//           - Before a box is written again, lane 0, whose stores they are, waits until all but the latest have been
//             read (cp.async.bulk.wait_group.read 1); __syncwarp() tells the others.
//           - Before a warp ends, all of its boxes must have been read: shared memory goes with the block. That they
//             have been written to C as well is certain at the end of the grid, and not waited for.
// Tails     As in 22; boxes are clipped at C's edges. A C whose rows do not begin at multiples of 16 bytes is not for
//           the copy engine: sums are then stored as in 22.
// Limit     Reads of L2. Blocks that are neighbours along m read the same B at about the same time, each for itself. 24
//           is about that.

#include "mbarrier.cuh"
#include "registers.cuh"
#include "repack.cuh"
#include "stage_ring.cuh"
#include "staged_store.cuh"
#include "tile_order.cuh"
#include "wgmma_store.cuh"
#include "wgmma_tile.cuh"

constexpr int CONSUMERS = BM / 64, THREADS = 128 * (CONSUMERS + 1);
constexpr int PRODUCER_REGISTERS = 40, CONSUMER_REGISTERS = 232, REGISTERS_AT_START = 65536 / THREADS / 8 * 8;
constexpr bool A_MN_MAJOR = A_TRANSPOSED, B_MN_MAJOR = !B_TRANSPOSED;
constexpr unsigned A_BYTES = TILE_BYTES<BM, A_MN_MAJOR>, B_BYTES = TILE_BYTES<BN, B_MN_MAJOR>;
constexpr unsigned STAGE_BYTES = A_BYTES + B_BYTES, RING_BYTES = STAGES * STAGE_BYTES;
constexpr unsigned BOXES_BYTES = 4 * CONSUMERS * BOXES_A_WARP * BOX_BYTES;
static_assert(BM % 64 == 0 && B_BYTES % 1024 == 0, "64 rows a consumer; tiles begin at multiples of 1024 bytes");
static_assert(PRODUCER_REGISTERS + CONSUMERS * CONSUMER_REGISTERS <= (CONSUMERS + 1) * REGISTERS_AT_START,
              "consumers take no more than there is");

// Addresses in shared memory.
struct Shared {
    unsigned ring;
    __device__ __forceinline__ unsigned stage(unsigned s) const { return ring + s * STAGE_BYTES; }
    __device__ __forceinline__ unsigned boxes(int warp) const {
        return ring + RING_BYTES + warp * BOXES_A_WARP * BOX_BYTES;
    }
    __device__ __forceinline__ unsigned full(unsigned s) const { return ring + RING_BYTES + BOXES_BYTES + s * 8; }
    __device__ __forceinline__ unsigned empty(unsigned s) const { return full(STAGES + s); }
};

// The tiles of C, numbered in the order in which they are taken.
struct Tiles {
    int along_m, along_n;
    __device__ __forceinline__ Tiles(int M, int N) : along_m((M + BM - 1) / BM), along_n((N + BN - 1) / BN) {}
    __device__ __forceinline__ int count() const { return along_m * along_n; }
    __device__ __forceinline__ TileIndex operator[](int i) const { return tile_of_block(i, along_m, along_n, GROUP); }
};

// Fills the ring with the k-blocks of one tile after another, each as soon as its stage is empty.
__device__ __forceinline__ void produce(const TensorMap* map_A, const TensorMap* map_B, Tiles tiles, int k_blocks,
                                        Shared shared) {
    RingPosition<STAGES> at;
    for (int i = blockIdx.x; i < tiles.count(); i += gridDim.x) {
        const TileIndex tile = tiles[i];
#pragma unroll 1
        for (int k_block = 0; k_block < k_blocks; ++k_block, at.advance()) {
            const unsigned tile_a = shared.stage(at.stage), full = shared.full(at.stage);
            mbarrier_wait(shared.empty(at.stage), at.parity ^ 1);
            mbarrier_arrive_expect(full, STAGE_BYTES);
            load_tile<BM, A_MN_MAJOR>(tile_a, map_A, tile.m * BM, k_block * BK, full);
            load_tile<BN, B_MN_MAJOR>(tile_a + A_BYTES, map_B, tile.n * BN, k_block * BK, full);
        }
    }
}

// Consumer `warpgroup` multiplies its 64 x BN of a tile, whose first k-block is `at` in the ring.
__device__ __forceinline__ void multiply(float (&acc)[BN / 2], RingPosition<STAGES>& at, int warpgroup, int k_blocks,
                                         Shared shared) {
    const int lane = threadIdx.x % 32;
    const MatrixDescriptor a = matrix_descriptor(shared.ring + warpgroup * WGMMA_BLOCK_BYTES);
    const MatrixDescriptor b = matrix_descriptor(shared.ring + A_BYTES);
    unsigned before = 0;  // the stage of the k-block before
#pragma unroll 1
    for (int k_block = 0; k_block < k_blocks; ++k_block, at.advance()) {
        mbarrier_wait(shared.full(at.stage), at.parity);
        wgmma_fence();
        multiply_tiles<BN, A_MN_MAJOR, B_MN_MAJOR>(acc, a.advance(at.stage * STAGE_BYTES),
                                                   b.advance(at.stage * STAGE_BYTES), k_block > 0);
        wgmma_commit();
        wgmma_wait<1>();  // the k-block before is multiplied; this one is under way
        if (k_block > 0 && lane == 0) mbarrier_arrive(shared.empty(before));
        before = at.stage;
    }
    wgmma_wait<0>();
    wgmma_fence_registers(acc);
    if (lane == 0) mbarrier_arrive(shared.empty(before));
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
gemm(const __grid_constant__ TensorMap map_A, const __grid_constant__ TensorMap map_B,
     const __grid_constant__ TensorMap map_C, Output* __restrict__ C, int M, int N, int K, int ldc,
     Epilogue epilogue) {
    extern __shared__ __align__(1024) unsigned char memory[];
    const Shared shared = {shared_address(memory)};
    const Tiles tiles(M, N);
    const int k_blocks = (K + BK - 1) / BK;
    const int warpgroup = __shfl_sync(0xffffffff, threadIdx.x / 128, 0);  // the compiler sees: one for all lanes

    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; ++s) {
            mbarrier_init(shared.full(s), 1);
            mbarrier_init(shared.empty(s), 4 * CONSUMERS);
        }
        fence_mbarrier_init();
    }
    __syncthreads();

    if (warpgroup == CONSUMERS) {
        give_registers<PRODUCER_REGISTERS>();
        if (threadIdx.x == 128 * CONSUMERS) produce(&map_A, &map_B, tiles, k_blocks, shared);
    } else {
        take_registers<CONSUMER_REGISTERS>();
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        const bool staged = tma_can_store(C, ldc);
        WarpBoxes boxes = {shared.boxes(warp)};
        RingPosition<STAGES> at;
        for (int i = blockIdx.x; i < tiles.count(); i += gridDim.x) {
            float acc[BN / 2];
            multiply(acc, at, warpgroup, k_blocks, shared);
            const TileIndex tile = tiles[i];
            const int m = tile.m * BM + 64 * warpgroup, n = tile.n * BN;
            if (staged)
                store_staged(acc, boxes, &map_C, m, n, M, N, epilogue);
            else
                store_sums(acc, C, ldc, m, n, M, N, epilogue);
        }
        if (lane == 0) tma_store_wait_read<0>();  // the boxes go when the block does
    }
}
