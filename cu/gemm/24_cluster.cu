// 24 cluster: C = A B on Hopper's tensor cores; two blocks share what they both read.
//
// Computes  C[m][n] = epilogue(sum over k of A[m][k] B[k][n]),  row-major, layouts NT, NN, TN, TT; bf16 and fp16, sums
//           in fp32; any M, N, K.
// Idea      In 23 blocks that are neighbours along m read the same B, each for itself. Here they are a cluster: each
//           asks for a half of B's tile, to be delivered to both. Of L2 a block reads 16384 bytes of A and 16384 of B a
//           k-block, where it was 16384 and 32768.
//           A stage is then filled by two blocks, so both producers must know that both blocks have emptied it: a warp
//           that has multiplied a stage tells its own block and the other.
//
// Tile      BM x BN x BK = 128 x 256 x 64 a block by default, CLUSTER = 2 blocks below each other: 256 x 256. Those are
//           taken in groups of GROUP = 8 rows, by as few clusters as need no more rounds.
// Threads   As in 22: threads 0 .. 255 multiply, thread 256 copies; registers as there.
// Shared    As in 23, and at the same addresses in both blocks, on which multicast relies.
//           bytes      0 .. 196607  4 stages of A, 16384 bytes, and B, 32768. Of B either block asks for half of the
//                                   rows in every box: of n in NT and TT, of k in NN and TN
//           bytes 196608 .. 229375  for each of 8 warps two boxes of 16 rows of 64 columns of C
//           bytes 229376 .. 229439  full of each stage, 8 bytes, then empty of each
//
// Barriers  Of stage s in round r of the ring over all tiles, with p = r % 2, in each block:
//             full[s]    1 arrival, its own producer's, and 49152 bytes: its A and both halves of B. Consumers wait for
//                        parity p. The other block's half may land before it is announced here: the count of bytes
//                        is below zero then, but the phase does not end before the arrival.
//             empty[s]   16 arrivals: of 8 warps here and of 8 there. The producer waits for parity 1 - p.
//           Both blocks walk the same tiles with as many k-blocks, one that lies below C's last row too: it multiplies
//           zeros and stores nothing, and nobody has to know.
// Order     - mbarrier.init and its fence as in 22, then a barrier of the cluster: nobody may arrive at a block, or
//             deliver to it, that has not begun. The arrival there is relaxed: what others must see, the fence has
//             released.
//           - Arrivals at the other block's empty[s] have the default semantics. Stages are read by wgmma alone: there
//             is nothing to publish, and .release.cluster would be a MEMBAR.ALL.GPU in every k-block.
//           - Stores to C as in 23.
//           - A block must not end while the other may still arrive at its barriers. Its producer waits until every
//             stage has been emptied a last time: all arrivals have then come. And what it delivered to the other block
//             has come there, since that one's warps saw it before they arrived.
// Tails     As in 23.
// Limit     Power. At 8192 the card is at its limit and below its top clock; that rises when fewer bytes are moved, and
//           what else can be gained is clocks in which nobody multiplies. Which SMs take neighbouring tiles, larger
//           tiles, stores behind the next tile's first k-blocks: 25 is about those.

#include "cluster.cuh"
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

// The tiles of C, CLUSTER below each other for a cluster, numbered in the order in which they are taken.
struct ClusterTiles {
    int along_m, along_n;
    __device__ __forceinline__ ClusterTiles(int M, int N)
        : along_m((M + CLUSTER * BM - 1) / (CLUSTER * BM)), along_n((N + BN - 1) / BN) {}
    __device__ __forceinline__ int count() const { return along_m * along_n; }
    // What block `rank` has of number i; it may lie below C's last row.
    __device__ __forceinline__ TileIndex tile(int i, int rank) const {
        const TileIndex index = tile_of_block(i, along_m, along_n, GROUP);
        return {CLUSTER * index.m + rank, index.n};
    }
};

// Fills the ring with the k-blocks of one tile after another, each as soon as all blocks have emptied its stage.
__device__ __forceinline__ void produce(const TensorMap* map_A, const TensorMap* map_B, ClusterTiles tiles, int rank,
                                        int k_blocks, Shared shared) {
    RingPosition<STAGES> at;
    for (int i = blockIdx.x / CLUSTER; i < tiles.count(); i += gridDim.x / CLUSTER) {
        const TileIndex tile = tiles.tile(i, rank);
#pragma unroll 1
        for (int k_block = 0; k_block < k_blocks; ++k_block, at.advance()) {
            const unsigned tile_a = shared.stage(at.stage), full = shared.full(at.stage);
            mbarrier_wait(shared.empty(at.stage), at.parity ^ 1);
            mbarrier_arrive_expect(full, STAGE_BYTES);
            load_tile<BM, A_MN_MAJOR>(tile_a, map_A, tile.m * BM, k_block * BK, full);
            load_tile_part<BN, B_MN_MAJOR, CLUSTER>(tile_a + A_BYTES, map_B, tile.n * BN, k_block * BK, full,
                                                    rank);
        }
    }
#pragma unroll 1
    for (int s = 0; s < STAGES; ++s, at.advance()) mbarrier_wait(shared.empty(at.stage), at.parity ^ 1);
}

// Consumer `warpgroup` multiplies its 64 x BN of a tile, whose first k-block is `at` in the ring. `told`: the shared
// memory of the block that this lane tells of stages that are empty, one of the first lanes each block.
__device__ __forceinline__ void multiply(float (&acc)[BN / 2], RingPosition<STAGES>& at, int warpgroup, int k_blocks,
                                         Shared shared, Shared told) {
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
        if (k_block > 0 && lane < CLUSTER) mbarrier_arrive_at(told.empty(before));
        before = at.stage;
    }
    wgmma_wait<0>();
    wgmma_fence_registers(acc);
    if (lane < CLUSTER) mbarrier_arrive_at(told.empty(before));
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
gemm(const __grid_constant__ TensorMap map_A, const __grid_constant__ TensorMap map_B,
     const __grid_constant__ TensorMap map_C, Output* __restrict__ C, int M, int N, int K, int ldc,
     Epilogue epilogue) {
    extern __shared__ __align__(1024) unsigned char memory[];
    const Shared shared = {shared_address(memory)};
    const ClusterTiles tiles(M, N);
    const int k_blocks = (K + BK - 1) / BK, rank = cluster_rank();
    const int warpgroup = __shfl_sync(0xffffffff, threadIdx.x / 128, 0);  // the compiler sees: one for all lanes

    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; ++s) {
            mbarrier_init(shared.full(s), 1);
            mbarrier_init(shared.empty(s), 4 * CONSUMERS * CLUSTER);
        }
        fence_mbarrier_init();
    }
    cluster_arrive_relaxed();
    cluster_wait();

    if (warpgroup == CONSUMERS) {
        give_registers<PRODUCER_REGISTERS>();
        if (threadIdx.x == 128 * CONSUMERS) produce(&map_A, &map_B, tiles, rank, k_blocks, shared);
    } else {
        take_registers<CONSUMER_REGISTERS>();
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        const Shared told = {map_to_rank(shared.ring, lane % CLUSTER)};
        const bool staged = tma_can_store(C, ldc);
        WarpBoxes boxes = {shared.boxes(warp)};
        RingPosition<STAGES> at;
        for (int i = blockIdx.x / CLUSTER; i < tiles.count(); i += gridDim.x / CLUSTER) {
            float acc[BN / 2];
            multiply(acc, at, warpgroup, k_blocks, shared, told);
            const TileIndex tile = tiles.tile(i, rank);
            const int m = tile.m * BM + 64 * warpgroup, n = tile.n * BN;
            if (staged)
                store_staged(acc, boxes, &map_C, m, n, M, N, epilogue);
            else
                store_sums(acc, C, ldc, m, n, M, N, epilogue);
        }
        if (lane == 0) tma_store_wait_read<0>();  // the boxes go when the block does
    }
}
