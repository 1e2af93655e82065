// 25 fast: C = A B on Hopper's tensor cores, one source for every size.
//
// Computes  C[m][n] = epilogue(sum over k of A[m][k] B[k][n]),  layouts NT, NN, TN, TT, any M, N, K.
// Idea      The same producer, ring and persistent consumers as before, with the choices left open that decide at one
//           size or another. Large products are limited by power: what helps is fewer bytes moved for the same sums,
//           so large tiles, clusters that share operands, and neighbouring tiles on one GPC. Small ones are limited by
//           latency: many small tiles, a deep ring, and the launch overlapped with the one before.
//
// Numbers   BM x BN x 64    the tile of a block
//           STAGES          of the ring
//           CONSUMERS       warpgroups that multiply, 1 or 2
//           PINGPONG        0: they share a tile, by rows. 1: each takes whole tiles, in turn: one multiplies while the
//                           other stores; their main loops keep an order
//           CLUSTER_M, _N   1 x 1, 2 x 1 (two tiles along m share B) or 1 x 2 (along n, sharing A)
//           STORE_BOXES     of shared memory that a warp stores C through
//           OVERLAP         what hides the stores of consumers that share a tile. 0: nothing. 1: C waits packed in
//                           registers and is stored behind the next tile's first k-blocks. 2: of two blocks of 64 rows,
//                           the upper is stored behind the lower's last products, the lower behind the next tile's
//           ALONG_N, GROUP  order of the tiles, cluster_order.cuh
//           GPC             1, 2: clusters of a GPC take neighbouring tiles, gpc_claim.cuh; 2: also those left over
//                           when every GPC has eight
//           PDL             1: the launch begins while the kernel before it ends
//
// Threads   CONSUMERS warpgroups; then the producer, one thread of a warp. Where sums need more registers than an equal
//           share, the producer is a warpgroup too, so that it can hand its registers over.
// Shared    STAGES x (A tile, B tile), then a box ring of every consumer warp, then the barriers `full` and `empty` of
//           each stage and the claimed place. Tiles begin at multiples of 1024 bytes, for the 128-byte swizzle.
// Barriers  full[stage]    one arrival, of the producer, and the tiles' bytes, from this block's copies and its peer's
//           empty[stage]   one arrival of each warp that reads the stage, in both blocks of a cluster: either may fill
//           Both blocks of a cluster take the same tiles in the same order, so a peer is at most a ring ahead.
// Tails     TMA reads zeros beyond the edge and does not write there. Rows of A and B that it cannot read have been
//           copied to rows that it can (repack.cuh); rows of C that it cannot write the warps write themselves.
// Limit     Power at 4096 and above: 690 W, at two thirds to four fifths of the clock. Below 1024 the launch.

#include "box_store.cuh"
#include "cluster.cuh"
#include "cluster_order.cuh"
#include "gpc_claim.cuh"
#include "mbarrier.cuh"
#include "named_barrier.cuh"
#include "programmatic.cuh"
#include "registers.cuh"
#include "repack.cuh"
#include "stage_reader.cuh"
#include "stage_ring.cuh"
#include "tma_tile.cuh"
#include "wgmma.cuh"

constexpr int CLUSTER = CLUSTER_M * CLUSTER_N;
constexpr int SHARERS = PINGPONG ? 1 : CONSUMERS;      // warpgroups that share a tile
constexpr int BLOCKS = BM / 64 / SHARERS;              // of 64 rows, a warpgroup's part of it
constexpr int SUMS = BLOCKS * BN / 2;                  // of a thread
constexpr bool TRADE = CONSUMERS == 2 && SUMS > 96;    // registers
constexpr int KEPT = SUMS > 128 ? 24 : 40, TAKEN = SUMS > 128 ? 240 : 232;
constexpr int THREADS = 128 * CONSUMERS + (TRADE ? 128 : 32);
constexpr int COLUMNS = BN % 64 ? BN : 64;             // of a box of C
constexpr int PIECES = BN / COLUMNS;                   // boxes of a warp's 16 rows

typedef TmaTile<BM, A_TRANSPOSED, CLUSTER_N> TileA;
typedef TmaTile<BN, !B_TRANSPOSED, CLUSTER_M> TileB;
typedef BoxStore<COLUMNS, STORE_BOXES> Boxes;
typedef ClusterOrder<ALONG_N, GROUP> Order;
typedef StageReader<TileA, TileB, BLOCKS, STAGES, CLUSTER> Reader;
typedef Reader::Block Block;

constexpr unsigned STAGE_BYTES = TileA::BYTES + TileB::BYTES, RING_BYTES = STAGES * STAGE_BYTES;
constexpr unsigned BOX_BYTES = 4 * CONSUMERS * STORE_BOXES * Boxes::BYTES;
constexpr int EMPTY_ARRIVALS = 4 * SHARERS * CLUSTER;
static_assert(BK == 64, "a row of the swizzle");
static_assert(CONSUMERS == 1 || CONSUMERS == 2, "more would leave each too few registers");
static_assert(BM == 64 * SHARERS * BLOCKS && BLOCKS <= 2, "one or two blocks of 64 rows a warpgroup");
static_assert(CLUSTER <= 2 && (GPC == 0 || CLUSTER == 2), "a peer at most; columns of a GPC are of pairs");
static_assert(!PINGPONG || (CONSUMERS == 2 && OVERLAP == 0), "two take turns, and hide each other's stores");
static_assert(OVERLAP != 2 || BLOCKS == 2, "an upper block and a lower");

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

// The tiles that this block multiplies, one after another. There is one at least: the host launches no more clusters.
struct Work {
    int M, N, number, step, end;  // numbers of tiles of the cluster: now, from one to the next, of none any more
    int m, n;                     // first row and column of this block's tile

    __device__ __forceinline__ Work(int M, int N, int place) : M(M), N(N) {
        const int clusters = gridDim.x / CLUSTER, tiles = order().count();
        const Share share = GPC == 2 ? share_in_columns(place, clusters, tiles) : share_in_turn(place, clusters, tiles);
        number = share.first;
        step = share.step;
        end = share.end;
        locate();
    }

    __device__ __forceinline__ Order order() const {
        return {(M + BM * CLUSTER_M - 1) / (BM * CLUSTER_M), (N + BN * CLUSTER_N - 1) / (BN * CLUSTER_N)};
    }

    __device__ __forceinline__ bool has(int ahead) const { return number + ahead * step < end; }
    __device__ __forceinline__ bool inside() const { return number < end; }

    __device__ __forceinline__ void next(int tiles) {
        number += tiles * step;
        locate();
    }

    __device__ __forceinline__ void locate() {
        const TileIndex tile = order().at(number);
        const int rank = CLUSTER > 1 ? cluster_rank() : 0;
        m = (tile.m * CLUSTER_M + (CLUSTER_M > 1 ? rank : 0)) * BM;
        n = (tile.n * CLUSTER_N + (CLUSTER_N > 1 ? rank : 0)) * BN;
    }
};

// The producer's thread: tile after tile, k-block after k-block into the ring.
__device__ __forceinline__ void produce(const TensorMap* map_A, const TensorMap* map_B, Shared shared, Work work,
                                        int k_blocks, int* counters) {
    const unsigned full = shared.full(), empty = shared.empty(), ring = shared.ring();
    const unsigned rank = CLUSTER > 1 ? cluster_rank() : 0;
    const unsigned short everyone = (1 << CLUSTER) - 1;
    const auto leave = [&] {  // the claim of this cluster's place; the last to leave has the counters ready for others
        if (rank == 0) leave_claim(counters, gridDim.x / CLUSTER);
        if (PDL) launch_dependents();
    };
    bool claimed = GPC;
    RingPosition<STAGES> at;
    if (PDL && !GPC) launch_dependents();
    if (PDL) wait_for_prerequisites();
    while (work.inside()) {
        const int m = work.m, n = work.n;
#pragma unroll 1
        for (int k_block = 0; k_block < k_blocks; ++k_block) {
            mbarrier_wait(empty + 8 * at.stage, at.parity ^ 1);  // the first round passes: nothing was there
            const unsigned filled = full + 8 * at.stage, stage = ring + at.stage * STAGE_BYTES;
            mbarrier_arrive_expect(filled, STAGE_BYTES);
            TileA::load(stage, map_A, m, k_block * BK, filled, rank, everyone);
            TileB::load(stage + TileA::BYTES, map_B, n, k_block * BK, filled, rank, everyone);
            at.advance();
            if (k_block == 0) work.next(1);  // divisions, while copies are on their way
        }
        if (claimed) leave();  // behind the first copies
        claimed = false;
    }
    if (CLUSTER > 1)  // a block must not end while its peer may still arrive at its barriers
        for (int stage = 0; stage < STAGES; ++stage, at.advance()) mbarrier_wait(empty + 8 * at.stage, at.parity ^ 1);
}

// Where a warp's sums go.
struct Writer {
    Boxes boxes;
    Epilogue epilogue;
    int row;  // of the warp's first in its tile

    __device__ __forceinline__ void pack(Packed<COLUMNS>& packed, const Block& acc, int block, int piece, int m,
                                         int n) const {
        pack_columns<COLUMNS>(packed, acc, piece * COLUMNS, m + row + 64 * block, n + piece * COLUMNS, boxes.M,
                              boxes.N, epilogue);
    }

    __device__ __forceinline__ void store(const Packed<COLUMNS>& packed, int block, int piece, int m, int n) {
        boxes.store(packed, m + row + 64 * block, n + piece * COLUMNS);
    }

    __device__ __forceinline__ void store_block(const Block& acc, int block, int m, int n) {
#pragma unroll
        for (int piece = 0; piece < PIECES; ++piece) {
            Packed<COLUMNS> packed;
            pack(packed, acc, block, piece, m, n);
            store(packed, block, piece, m, n);
        }
    }
};

// Consumers that share a tile, stored when it is finished; or one that takes turns with the other.
__device__ __forceinline__ void consume(Reader reader, Writer writer, Work work, int k_blocks, int group) {
    const int turn = 1 + group, other = 2 - group, stride = PINGPONG ? 2 : 1;
    if (PINGPONG && group == 1) {
        reader.at.skip(k_blocks);
        work.next(1);
    }
    for (bool waits = group == 1; work.inside(); waits = true) {
        Block acc[BLOCKS];
        if (PINGPONG && waits) named_barrier_sync(turn, 256);  // the other has started all its products
        reader.begin(acc, [] {});
#pragma unroll 1
        for (int k_block = 1; k_block < k_blocks; ++k_block) reader.go_on(acc);
        if (PINGPONG && work.has(1)) named_barrier_arrive(other, 256);
        const int m = work.m, n = work.n;
        work.next(stride);
        reader.end(acc);
        if (PINGPONG) reader.at.skip(k_blocks);
#pragma unroll
        for (int block = 0; block < BLOCKS; ++block) writer.store_block(acc[block], block, m, n);
    }
}

// The same, C kept packed and stored behind the next tile's first k-blocks.
__device__ __forceinline__ void consume_packed(Reader reader, Writer writer, Work work, int k_blocks) {
    constexpr int ALL = BLOCKS * PIECES;
    Block acc[BLOCKS];
    Packed<COLUMNS> packed[ALL];
    int m, n, k_block = 1;
    reader.begin(acc, [] {});
    while (true) {
#pragma unroll 1
        for (; k_block < k_blocks; ++k_block) reader.go_on(acc);
        m = work.m, n = work.n;
        work.next(1);
        reader.end(acc);
#pragma unroll
        for (int i = 0; i < ALL; ++i) writer.pack(packed[i], acc[i / PIECES], i / PIECES, i % PIECES, m, n);
        if (!work.inside()) break;
        reader.begin(acc, [] {});
        k_block = 1;
#pragma unroll
        for (int i = 0; i < ALL; ++i) {
            if (i > 0 && k_block < k_blocks) {
                reader.go_on(acc);
                ++k_block;
            }
            writer.store(packed[i], i / PIECES, i % PIECES, m, n);
        }
    }
#pragma unroll
    for (int i = 0; i < ALL; ++i) writer.store(packed[i], i / PIECES, i % PIECES, m, n);
}

// The same without a copy: of two blocks of rows one is stored while the other is multiplied. No condition stands
// between products and stores: the compiler would wait for all products before it.
__device__ __forceinline__ void consume_halves(Reader reader, Writer writer, Work work, int k_blocks) {
    Block acc[BLOCKS];
    int m, n;
    reader.begin(acc, [] {});
    while (true) {
#pragma unroll 1
        for (int k_block = 1; k_block < k_blocks; ++k_block) reader.go_on(acc);
        m = work.m, n = work.n;
        work.next(1);
        wgmma_wait<1>();
        wgmma_fence_registers(acc[0]);
        writer.store_block(acc[0], 0, m, n);
        reader.end(acc);
        if (!work.inside()) break;
        reader.begin(acc, [&] { writer.store_block(acc[BLOCKS - 1], 1, m, n); });
    }
    writer.store_block(acc[BLOCKS - 1], 1, m, n);
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

extern "C" __global__ void __launch_bounds__(THREADS, 1)
gemm(const __grid_constant__ TensorMap map_A, const __grid_constant__ TensorMap map_B,
     const __grid_constant__ TensorMap map_C, Output* __restrict__ C, int M, int N, int K, int ldc, int* counters,
     const unsigned char* __restrict__ gpc_of_sm, Epilogue epilogue) {
    extern __shared__ __align__(1024) char memory[];
    const Shared shared = {memory};
    const int group = __shfl_sync(0xffffffff, threadIdx.x / 128, 0), warp = threadIdx.x / 32;  // group: uniform
    const bool by_tma = reinterpret_cast<unsigned long long>(C) % 16 == 0 && ldc * sizeof(Output) % 16 == 0;
    const int k_blocks = (K + BK - 1) / BK;
    if (threadIdx.x == 128 * CONSUMERS) {
        prefetch_map(&map_A);
        prefetch_map(&map_B);
        if (by_tma) prefetch_map(&map_C);
    }
    begin_block(shared, counters, gpc_of_sm);

    if (group == CONSUMERS) {
        if constexpr (TRADE) give_registers<KEPT>();
        if (threadIdx.x == 128 * CONSUMERS)
            produce(&map_A, &map_B, shared, Work(M, N, place_of(shared)), k_blocks, counters);
        return;
    }
    if constexpr (TRADE) take_registers<TAKEN>();
    const Work work(M, N, place_of(shared));
    const int first_block = PINGPONG ? 0 : group * BLOCKS;
    const Reader reader(shared.ring(), shared.full(), shared.empty(), first_block);
    Writer writer = {{&map_C, shared.boxes(warp), C, M, N, ldc, by_tma}, epilogue, 64 * first_block + warp % 4 * 16};
    if constexpr (OVERLAP == 2)
        consume_halves(reader, writer, work, k_blocks);
    else if constexpr (OVERLAP == 1)
        consume_packed(reader, writer, work, k_blocks);
    else
        consume(reader, writer, work, k_blocks, group);
    writer.boxes.finish();
}
