// 22 warp specialised: C = A B on Hopper's tensor cores; one warpgroup copies, two multiply.
//
// Computes  C[m][n] = epilogue(sum over k of A[m][k] B[k][n]),  row-major, layouts NT, NN, TN, TT; bf16 and fp16, sums
//           in fp32; any M, N, K.
// Idea      In 21 who multiplies also asks for copies, and a block stops together once a k-block. Here a warpgroup of
//           its own asks, and runs ahead as far as the ring has room; two others multiply, each at its own pace. No two
//           of them meet: who fills a stage and who empties it tell each other by two mbarriers.
//           And the tile doubles. 128 x 256 are 128 sums for each thread of two warpgroups, while those that copy need
//           next to nothing: setmaxnreg hands their registers over.
//
// Tile      BM x BN x BK = 128 x 256 x 64 by default: 49152 bytes a k-block. Tiles of 128 x 128 would read a third more
//           bytes from L2 for as many products. Tiles are taken in groups of 8 rows, as in 21.
// Threads   threads   0 .. 127   consumer 0, rows  0 ..  63 of the tile: wgmma of 64 x 256 x 16
//           threads 128 .. 255   consumer 1, rows 64 .. 127
//           threads 256 .. 383   producer: thread 256 works, the others have only given their registers
//           Warp w holds rows 16 w .. 16 w + 15; its lane l rows l / 4 and l / 4 + 8, of every 8 columns 2 (l % 4) and
//           the next (cu/include/wgmma.cuh).
// Registers 65536 / 384 are 168 a thread at the start: they come in eights. The producer keeps 40, consumers take 232,
//           and 40 + 2 x 232 = 3 x 168. Were it more, they would wait for ever.
// Shared    bytes      0 ..  16383  stage 0, A: 128 m by 64 k
//           bytes  16384 ..  49151  stage 0, B: 256 n by 64 k; the form of both: cu/include/wgmma.cuh
//           bytes  49152 .. 196607  stages 1 .. 3
//           bytes 196608 .. 196671  full of each stage, 8 bytes, then empty of each
//
// Barriers  Of stage s in round r = 0, 1, .. of the ring, with p = r % 2 (cu/include/stage_ring.cuh):
//             full[s]    1 arrival, the producer's, and 49152 bytes, the copy engine's. Consumers wait for parity p.
//             empty[s]   8 arrivals, one of each warp that multiplies. The producer waits for parity 1 - p, that is
//                        for round r - 1; before round 0 that is true of a new barrier.
// Order     - mbarrier.init, fence.mbarrier_init, __syncthreads(): the fence lets the copy engine see the new barriers,
//             the barrier the threads.
//           - The copy engine's bytes are seen by who has waited for full[s]. wgmma is of the async proxy, as it is:
//             no fence stands between them.
//           - A warp arrives at empty[s] when its wait says that the k-block of stage s is multiplied, one k-block
//             behind the one that it has just started: the tensor cores have work meanwhile. The wait is each warp's
//             own, and so is the arrival.
//           - The producer then has a stage overwritten that wgmma has read and nobody has written: nothing to fence.
// Tails     What lies outside A or B arrives as zeros, which count as bytes; stores to C are guarded. An A or B with
//           rows that TMA cannot take has been copied before (cu/include/repack.cuh).
// Limit     A tile's two ends. Nobody multiplies while the ring is first filled, nor while C is stored, and there is no
//           room for a second block on the SM that would. 23 is about that.

#include "mbarrier.cuh"
#include "registers.cuh"
#include "repack.cuh"
#include "stage_ring.cuh"
#include "tile_order.cuh"
#include "wgmma_store.cuh"
#include "wgmma_tile.cuh"

constexpr int CONSUMERS = BM / 64, THREADS = 128 * (CONSUMERS + 1);
constexpr int RASTER = 8;  // rows of tiles in a group
constexpr int PRODUCER_REGISTERS = 40, CONSUMER_REGISTERS = 232, REGISTERS_AT_START = 65536 / THREADS / 8 * 8;
constexpr bool A_MN_MAJOR = A_TRANSPOSED, B_MN_MAJOR = !B_TRANSPOSED;
constexpr unsigned A_BYTES = TILE_BYTES<BM, A_MN_MAJOR>, B_BYTES = TILE_BYTES<BN, B_MN_MAJOR>;
constexpr unsigned STAGE_BYTES = A_BYTES + B_BYTES, RING_BYTES = STAGES * STAGE_BYTES;
static_assert(BM % 64 == 0 && B_BYTES % 1024 == 0, "64 rows a consumer; tiles begin at multiples of 1024 bytes");
static_assert(PRODUCER_REGISTERS + CONSUMERS * CONSUMER_REGISTERS <= (CONSUMERS + 1) * REGISTERS_AT_START,
              "consumers take no more than there is");

// Addresses in shared memory.
struct Shared {
    unsigned ring;
    __device__ __forceinline__ unsigned stage(unsigned s) const { return ring + s * STAGE_BYTES; }
    __device__ __forceinline__ unsigned full(unsigned s) const { return ring + RING_BYTES + s * 8; }
    __device__ __forceinline__ unsigned empty(unsigned s) const { return full(STAGES + s); }
};

// Fills the ring with one k-block after another, each as soon as its stage is empty.
__device__ __forceinline__ void produce(const TensorMap* map_A, const TensorMap* map_B, int tile_m, int tile_n,
                                        int k_blocks, Shared shared) {
    RingPosition<STAGES> at;
#pragma unroll 1
    for (int k_block = 0; k_block < k_blocks; ++k_block, at.advance()) {
        const unsigned tile_a = shared.stage(at.stage), full = shared.full(at.stage);
        mbarrier_wait(shared.empty(at.stage), at.parity ^ 1);
        mbarrier_arrive_expect(full, STAGE_BYTES);
        load_tile<BM, A_MN_MAJOR>(tile_a, map_A, tile_m, k_block * BK, full);
        load_tile<BN, B_MN_MAJOR>(tile_a + A_BYTES, map_B, tile_n, k_block * BK, full);
    }
}

// Consumer `warpgroup` multiplies its 64 x BN of the tile.
__device__ __forceinline__ void multiply(float (&acc)[BN / 2], int warpgroup, int k_blocks, Shared shared) {
    const int lane = threadIdx.x % 32;
    const MatrixDescriptor a = matrix_descriptor(shared.ring + warpgroup * WGMMA_BLOCK_BYTES);
    const MatrixDescriptor b = matrix_descriptor(shared.ring + A_BYTES);
    RingPosition<STAGES> at;
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
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
gemm(const __grid_constant__ TensorMap map_A, const __grid_constant__ TensorMap map_B, Output* __restrict__ C,
     int M, int N, int K, int ldc, Epilogue epilogue) {
    extern __shared__ __align__(1024) unsigned char memory[];
    const Shared shared = {shared_address(memory)};
    const TileIndex tile = tile_of_block(blockIdx.x, (M + BM - 1) / BM, (N + BN - 1) / BN, RASTER);
    const int tile_m = tile.m * BM, tile_n = tile.n * BN, k_blocks = (K + BK - 1) / BK;
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
        if (threadIdx.x == 128 * CONSUMERS) produce(&map_A, &map_B, tile_m, tile_n, k_blocks, shared);
    } else {
        take_registers<CONSUMER_REGISTERS>();
        float acc[BN / 2];
        multiply(acc, warpgroup, k_blocks, shared);
        store_sums(acc, C, ldc, tile_m + 64 * warpgroup, tile_n, M, N, epilogue);
    }
}
