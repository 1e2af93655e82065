// 27 split-K cluster: C = A B on Hopper's tensor cores for few tiles and a long K; what several blocks read, once.
//
// Computes  C[m][n] = epilogue(sum over k of A[m][k] B[k][n]),  row-major, layouts NT, NN, TN, TT; bf16 and fp16, sums
//           in fp32; any M, N, K.
// Idea      16 cuts K into slices, and the blocks of a slice each read their tile's A and B: at 128 x 128 every row is
//           read by two blocks, and what L2 hands out to all SMs at once is what takes longest. Here the tiles of one
//           slice that are neighbours form a cluster, as in 24 but in both directions: of 2 x 2 blocks each asks for
//           half of its A, delivered to the two that share it, and for half of its B. Of L2 a block then reads 8192
//           bytes a k-block, where it was 16384. wgmma multiplies where the bytes have landed.
//           The sums of the slices meet as in 16: cu/include/split_sums.cuh.
//
// Tile      64 x BN x 64, and SPLITS slices of K. Clusters of CLUSTER_M x CLUSTER_N tiles; in the grid, slices in z.
//           An H200 has room for 30 clusters of 2 x 2, on 120 of its SMs, and for 66 of two, on all 132.
// Threads   4 warps that multiply, 16 rows of the tile each; then one of which thread 128 copies.
// Shared    STAGES x (A tile 8192 bytes, B tile BN x 128), then `full` and `empty` of each stage, 8 bytes each. Best so
//           many stages that a slice needs each but once, or that two blocks fit on an SM.
//
// Barriers  Of stage s, in round r of the ring, in each block:
//             full[s]    1 arrival, its own producer's, and the bytes of both tiles, whoever asked for them
//             empty[s]   of 4 warps in each block that this one's copies reach; the producer waits for it from the
//                        second round on. Nobody arrives for a round that does not come.
//           All blocks of a cluster have the same slice, so as many k-blocks.
// Order     - Barriers are fenced and a relaxed barrier of the cluster passed before anyone copies, as in 24.
//           - A block ends behind a second one, at which all have arrived when they had multiplied: then all that was
//             to be delivered to others has been, and nobody arrives at its barriers any more.
// Numbers   LOOKS: split_sums.cuh. PDL: 16_split_k.cu. PREFETCH = 1: while the launch before ends, the producer has L2
//           fetch what it will ask for.
// Tails     TMA reads zeros beyond the edge. Tiles beyond C's edge, which fill up a cluster, store nothing.
// Limit     By count, for 128 x 128 x 16384 in 30 slices: a block reads 68 KiB of operands and takes in 137; it writes
//           and reads 16 KiB of sums. Then latencies: a barrier of the cluster, the first bytes, those of a meeting.

#include "cluster.cuh"
#include "mbarrier.cuh"
#include "programmatic.cuh"
#include "repack.cuh"
#include "stage_ring.cuh"
#include "tma_tile.cuh"

constexpr int WARPS = 4, THREADS = 32 * (WARPS + 1), PART_M = 16, PART_N = BN;
static_assert(BM == 64 && BK == 64, "a warpgroup's rows, and a row of 128 bytes");
static_assert(SPLITS > 1 && LOOKS > 0, "sums that meet");

#include "split_sums.cuh"

constexpr int CLUSTER = CLUSTER_M * CLUSTER_N, REACHED = CLUSTER_M + CLUSTER_N - 1;  // blocks, and those of a cross
typedef TmaTile<BM, A_TRANSPOSED, CLUSTER_N> TileA;
typedef TmaTile<BN, !B_TRANSPOSED, CLUSTER_M> TileB;
constexpr unsigned STAGE_BYTES = TileA::BYTES + TileB::BYTES;

// Where a block is in its cluster.
struct Place {
    unsigned m, n;
    __device__ __forceinline__ unsigned short row() const { return ((1 << CLUSTER_N) - 1) << m * CLUSTER_N; }
    __device__ __forceinline__ unsigned short column() const {
        unsigned short blocks = 0;
        for (int i = 0; i < CLUSTER_M; ++i) blocks |= 1 << i * CLUSTER_N;
        return blocks << n;
    }
    // Number i of the blocks in its row and its column: those of the row, then the others of the column.
    __device__ __forceinline__ unsigned reached(unsigned i) const {
        if (i < CLUSTER_N) return m * CLUSTER_N + i;
        const unsigned other = i - CLUSTER_N;
        return (other < m ? other : other + 1) * CLUSTER_N + n;
    }
};

// A slice without k-blocks has one beyond K, of zeros.
__device__ __forceinline__ Slice one_block_at_least(Slice slice, int K) {
    const int beyond = ((unsigned)K + BK - 1) / BK;
    return slice.first < slice.end ? slice : Slice{beyond, beyond + 1};
}

// Addresses in shared memory.
struct Shared {
    unsigned ring;
    __device__ __forceinline__ unsigned stage(unsigned s) const { return ring + s * STAGE_BYTES; }
    __device__ __forceinline__ unsigned full(unsigned s) const { return ring + STAGES * STAGE_BYTES + s * 8; }
    __device__ __forceinline__ unsigned empty(unsigned s) const { return full(STAGES + s); }
};

// What the block copies of one k-block after another: its parts of the tiles of A and B.
struct Copies {
    const TensorMap *map_A, *map_B;
    int m, n;
    Place place;

    __device__ __forceinline__ void prefetch(Slice slice) const {
#pragma unroll 1
        for (int k_block = slice.first; k_block < slice.end; ++k_block) {
            TileA::prefetch(map_A, m, k_block * BK, place.n);
            TileB::prefetch(map_B, n, k_block * BK, place.m);
        }
    }

    __device__ __forceinline__ void run(Slice slice, Shared shared) const {
        RingPosition<STAGES> at;
#pragma unroll 1
        for (int k_block = slice.first; k_block < slice.end; ++k_block, at.advance()) {
            const unsigned full = shared.full(at.stage), tile_a = shared.stage(at.stage);
            mbarrier_wait(shared.empty(at.stage), at.parity ^ 1);
            mbarrier_arrive_expect(full, STAGE_BYTES);
            TileA::load(tile_a, map_A, m, k_block * BK, full, place.n, place.row());
            TileB::load(tile_a + TileA::BYTES, map_B, n, k_block * BK, full, place.m, place.column());
        }
    }
};

// The block's 64 x BN. `told`: the shared memory of the block that this lane tells of stages that are empty.
__device__ __forceinline__ void multiply(float (&acc)[BN / 2], int k_blocks, Shared shared, Shared told) {
    const MatrixDescriptor a = matrix_descriptor(shared.ring), b = matrix_descriptor(shared.ring + TileA::BYTES);
    RingPosition<STAGES> at;
#pragma unroll 1
    for (int k_block = 0; k_block < k_blocks; ++k_block, at.advance()) {
        mbarrier_wait(shared.full(at.stage), at.parity);
        const unsigned offset = at.stage * STAGE_BYTES;
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < BK / 16; ++k)
            wgmma<BN, TileA::ALONG_SIDE, TileB::ALONG_SIDE>(
                acc, a.advance(offset + k * WGMMA_K_STEP_BYTES<TileA::ALONG_SIDE>),
                b.advance(offset + k * WGMMA_K_STEP_BYTES<TileB::ALONG_SIDE>), k_block > 0 || k > 0);
        wgmma_commit();
        wgmma_wait<1>();  // the k-block before is multiplied
        const bool taken_again = k_block > 0 && k_block - 1 + STAGES < k_blocks;  // the stage of the k-block before
        if (taken_again && threadIdx.x % 32 < REACHED) mbarrier_arrive_at(told.empty(at.before()));
    }
    wgmma_wait<0>();
    wgmma_fence_registers(acc);
}

// What a warp says when all that it waited for from its cluster has come.
__device__ __forceinline__ void multiplied() {
    if constexpr (PDL == 1) launch_dependents();
    if constexpr (CLUSTER > 1) cluster_arrive_relaxed();
}

extern "C" __global__ void __launch_bounds__(THREADS, PDL == 2 ? 2 : 1)
gemm(const __grid_constant__ TensorMap map_A, const __grid_constant__ TensorMap map_B, Output* C, int M, int N, int K,
     int ldc, Count* workspace, Epilogue epilogue) {
    extern __shared__ __align__(1024) unsigned char memory[];
    if constexpr (PDL == 2) launch_dependents();

    const Shared shared = {shared_address(memory)};
    const Place place = {blockIdx.y % CLUSTER_M, blockIdx.x % CLUSTER_N};
    const int m = blockIdx.y * BM, n = blockIdx.x * BN;
    const Slice slice = one_block_at_least(slice_of_k(blockIdx.z, K), K);
    const Copies copies = {&map_A, &map_B, m, n, place};
    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0);  // the compiler sees: one for all lanes
    if (threadIdx.x == 32 * WARPS) {
        prefetch_map(&map_A);
        prefetch_map(&map_B);
        for (int s = 0; s < STAGES; ++s) {
            mbarrier_init(shared.full(s), 1);
            mbarrier_init(shared.empty(s), WARPS * REACHED);
        }
        fence_mbarrier_init();
        if constexpr (PREFETCH > 0) copies.prefetch(slice);
    }
    if constexpr (CLUSTER > 1) {
        cluster_arrive_relaxed();
        cluster_wait();
    } else {
        __syncthreads();
    }
    if constexpr (PDL > 0) wait_for_prerequisites();  // what comes before may write A and B, and use the workspace

    if (warp == WARPS) {
        if (threadIdx.x == 32 * WARPS) copies.run(slice, shared);
        __syncwarp();
        multiplied();
    } else {
        const unsigned lane = threadIdx.x % 32;
        float acc[BN / 2];
        multiply(acc, slice.end - slice.first, shared, {map_to_rank(shared.ring, place.reached(lane % REACHED))});
        multiplied();

        const TileOfC to = {C, M, N, ldc, m + warp * PART_M, n};
        // Not `warp`: of an atomic at an address that the compiler knows to be one for all lanes, it makes a sum over
        // them, though only the first asks.
        const int tile = blockIdx.y * gridDim.x + blockIdx.x, number = tile * WARPS + threadIdx.x / 32;
        float4* parts = parts_of_warp(workspace, number, gridDim.x * gridDim.y * WARPS);
#pragma unroll
        for (int piece = 0; piece < PIECES; ++piece)
            write_part(parts, blockIdx.z, piece,
                       make_float4(acc[4 * piece], acc[4 * piece + 1], acc[4 * piece + 2], acc[4 * piece + 3]));
        add_up_together(workspace + number * 16ll, parts, blockIdx.z, to, epilogue);
    }
    if constexpr (CLUSTER > 1) cluster_wait();
}
