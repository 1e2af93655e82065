// A block of the fast family, gemm/25_fast and gemm/26_fp8: what its numbers make of it, where things lie in its shared
// memory, which tiles it multiplies, and the thread that fetches them. What the numbers mean stands in 25_fast.cu.
#pragma once

#include "box_store.cuh"
#include "cluster.cuh"
#include "cluster_order.cuh"
#include "gpc_claim.cuh"
#include "mbarrier.cuh"
#include "programmatic.cuh"
#include "slice_of_k.cuh"
#include "stage_reader.cuh"
#include "stage_ring.cuh"
#include "tma_tile.cuh"

#if !defined(PROMOTE)
#define PROMOTE 0  // one set of sums: a second one is 26_fp8.cu's
#endif

constexpr int CLUSTER = CLUSTER_M * CLUSTER_N;
constexpr int SHARERS = PINGPONG ? 1 : CONSUMERS;      // warpgroups that share a tile
constexpr int BLOCKS = BM / 64 / SHARERS;              // of 64 rows, a warpgroup's part of it
constexpr int SUMS = (BLOCKS + (PROMOTE > 0)) * BN / 2;  // of a thread
constexpr int SPAN = PROMOTE ? PROMOTE / BK : 1;       // k-blocks of a sum that is added to another
constexpr bool TRADE = CONSUMERS == 2 && SUMS > 96;    // registers
constexpr int KEPT = SUMS > 128 ? 24 : 40, TAKEN = SUMS > 128 ? 240 : 232;
constexpr int THREADS = 128 * CONSUMERS + (TRADE ? 128 : 32);
constexpr int COLUMNS = BN % 64 ? BN : 64;             // of a box of C
constexpr int PIECES = BN / COLUMNS;                   // boxes of a warp's 16 rows

typedef TmaTile<BM, A_TRANSPOSED, CLUSTER_N> TileA;
typedef TmaTile<BN, !B_TRANSPOSED, CLUSTER_M> TileB;
typedef BoxStore<COLUMNS, STORE_BOXES, (SNAKE == 2)> Boxes;
typedef ClusterOrder<ALONG_N, GROUP, (SNAKE > 0)> Order;
typedef StageReader<TileA, TileB, BLOCKS, STAGES, CLUSTER> Reader;
typedef Reader::Block Block;

constexpr unsigned STAGE_BYTES = TileA::BYTES + TileB::BYTES, RING_BYTES = STAGES * STAGE_BYTES;
constexpr unsigned BOX_BYTES = 4 * CONSUMERS * STORE_BOXES * Boxes::BYTES;
constexpr int EMPTY_ARRIVALS = 4 * SHARERS * CLUSTER;
static_assert(BK * sizeof(Operand) == 128, "a row of the swizzle");
static_assert(CONSUMERS == 1 || CONSUMERS == 2, "more would leave each too few registers");
static_assert(BM == 64 * SHARERS * BLOCKS && BLOCKS <= 2, "one or two blocks of 64 rows a warpgroup");
static_assert(CLUSTER <= 2 && (GPC == 0 || CLUSTER == 2), "a peer at most; columns of a GPC are of pairs");
static_assert(!PINGPONG || (CONSUMERS == 2 && OVERLAP == 0), "two take turns, and hide each other's stores");
static_assert(OVERLAP != 2 || BLOCKS == 2, "an upper block and a lower");
static_assert(SPLITS == 1 || (OVERLAP == 0 && PROMOTE == 0), "sums of slices meet as a whole");

// Shared memory, as addresses.
struct Shared {
    char* memory;

    __device__ __forceinline__ unsigned ring() const { return shared_address(memory); }
    __device__ __forceinline__ char* boxes(int warp) const {
        return memory + RING_BYTES + warp * STORE_BOXES * Boxes::BYTES;
    }
    __device__ __forceinline__ unsigned full() const { return ring() + RING_BYTES + BOX_BYTES; }
    __device__ __forceinline__ unsigned empty() const { return full() + 8 * STAGES; }
    __device__ __forceinline__ int* place() const {
        return reinterpret_cast<int*>(memory + RING_BYTES + BOX_BYTES + 16 * STAGES);
    }
};

// What this block multiplies, item after item: tiles, or slices of them. There is one at least: the host launches no
// more clusters. Slice 0 of all tiles comes first, then slice 1 of all: items multiplied at about the same time are
// neighbouring tiles over the same k, which share operands. Slices of one tile share none.
struct Work {
    int M, N, k_blocks;     // of a tile
    int number, step, end;  // numbers of items of the cluster: now, from one to the next, of none any more
    int m, n;               // first row and column of this block's tile

    __device__ __forceinline__ Work(int M, int N, int k_blocks, int place) : M(M), N(N), k_blocks(k_blocks) {
        const int clusters = gridDim.x / CLUSTER, items = tiles() * SPLITS;
        const Share share = GPC == 2 ? share_in_columns(place, clusters, items) : share_in_turn(place, clusters, items);
        number = share.first;
        step = share.step;
        end = share.end;
        locate();
    }

    __device__ __forceinline__ Order order() const {
        return {(M + BM * CLUSTER_M - 1) / (BM * CLUSTER_M), (N + BN * CLUSTER_N - 1) / (BN * CLUSTER_N)};
    }

    // Tiles of a cluster in all; the item's tile, and its slice or that of the item `ahead` further.
    __device__ __forceinline__ int tiles() const { return order().count(); }
    __device__ __forceinline__ int tile() const { return SPLITS > 1 ? number % tiles() : number; }
    __device__ __forceinline__ int slice(int ahead = 0) const {
        return SPLITS > 1 ? (number + ahead * step) / tiles() : 0;
    }

    // The k-blocks to multiply, and how many they are.
    __device__ __forceinline__ Slice k_slice(int ahead = 0) const {
        if constexpr (SPLITS > 1) return slice_of_blocks(slice(ahead), k_blocks);
        return {0, k_blocks};
    }
    __device__ __forceinline__ int count_k_blocks(int ahead = 0) const {
        const Slice slice = k_slice(ahead);
        return slice.end - slice.first;
    }

    __device__ __forceinline__ bool has(int ahead) const { return number + ahead * step < end; }
    __device__ __forceinline__ bool inside() const { return number < end; }

    __device__ __forceinline__ void next(int items) {
        number += items * step;
        locate();
    }

    __device__ __forceinline__ void locate() {
        const TileIndex tile = order().at(this->tile());
        const int rank = CLUSTER > 1 ? cluster_rank() : 0;
        m = (tile.m * CLUSTER_M + (CLUSTER_M > 1 ? rank : 0)) * BM;
        n = (tile.n * CLUSTER_N + (CLUSTER_N > 1 ? rank : 0)) * BN;
    }
};

// The producer's thread: item after item, k-block after k-block into the ring.
__device__ __forceinline__ void produce(const TensorMap* map_A, const TensorMap* map_B, Shared shared, Work work,
                                        int* counters) {
    const unsigned full = shared.full(), empty = shared.empty(), ring = shared.ring();
    const unsigned rank = CLUSTER > 1 ? cluster_rank() : 0;
    const unsigned short everyone = (1 << CLUSTER) - 1;
    const auto leave = [&] {  // the claim of this cluster's place; the last to leave has the counters ready for others
        if (rank == 0) leave_claim(counters, gridDim.x / CLUSTER);
        if (PDL) launch_dependents();
    };
    bool claimed = GPC, backwards = false;
    RingPosition<STAGES> at;
    if (PDL && !GPC) launch_dependents();
    if (PDL) wait_for_prerequisites();
    while (work.inside()) {
        const int m = work.m, n = work.n;
        const Slice slice = work.k_slice();
#pragma unroll 1
        for (int k_block = slice.first; k_block < slice.end; ++k_block) {
            mbarrier_wait(empty + 8 * at.stage, at.parity ^ 1);  // the first round passes: nothing was there
            const unsigned filled = full + 8 * at.stage, stage = ring + at.stage * STAGE_BYTES;
            mbarrier_arrive_expect(filled, STAGE_BYTES);
            const int k = (backwards ? slice.first + slice.end - 1 - k_block : k_block) * BK;
            TileA::load(stage, map_A, m, k, filled, rank, everyone);
            TileB::load(stage + TileA::BYTES, map_B, n, k, filled, rank, everyone);
            at.advance();
            if (k_block == slice.first) work.next(1);  // divisions, while copies are on their way
        }
        if (claimed) leave();  // behind the first copies
        claimed = false;
        if (SNAKE) backwards = !backwards;  // what all have read last is still in L2
    }
    if (CLUSTER > 1)  // a block must not end while its peer may still arrive at its barriers
        for (int stage = 0; stage < STAGES; ++stage, at.advance()) mbarrier_wait(empty + 8 * at.stage, at.parity ^ 1);
}

// Barriers, and this cluster's place among all. Every thread returns after they can be used.
__device__ __forceinline__ void begin_block(Shared shared, int* counters, const unsigned char* gpc_of_sm) {
    const bool claims = GPC && threadIdx.x == 0 && cluster_rank() == 0;
    int place = 0;
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; ++stage) {
            mbarrier_init(shared.full() + 8 * stage, 1);
            mbarrier_init(shared.empty() + 8 * stage, EMPTY_ARRIVALS);
        }
        fence_mbarrier_init();
        if (claims) place = claim_place(counters, gpc_of_sm, gridDim.x / CLUSTER);
    }
    if (CLUSTER > 1) {
        cluster_arrive_relaxed();
        cluster_wait();
    } else {
        __syncthreads();
    }
    if (GPC) {  // both blocks have begun: each is told, so that none reads the other's memory later
        if (claims)
            for (int rank = 0; rank < CLUSTER; ++rank)
                store_shared_cluster(map_to_rank(shared_address(shared.place()), rank), place);
        cluster_barrier();
    }
}

// This cluster's place: claimed, or simply its number.
__device__ __forceinline__ int place_of(Shared shared) { return GPC ? *shared.place() : blockIdx.x / CLUSTER; }
