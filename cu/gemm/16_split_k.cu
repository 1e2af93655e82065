// 16 split-K: C = A B on tensor cores for few tiles and a long K; who is there adds up, and nobody must wait.
//
// Computes  C[m][n] = epilogue(sum over k),  row-major, layouts NN, NT, TN, TT, any M, N, K, sums in fp32.
// Idea      15 waits until every block has come: a barrier, and a launch that promises that all blocks run at once.
//           Here no launch promises anything. A warp writes its sums to the workspace and counts itself in; its number
//           is that of the share of the sums that it is to add up. It looks a few times whether the others have come.
//           If so, all add up together, as in 15; if not, it leaves its share to whoever comes last, and ends. So the
//           last never waits, and has more to do only where it has kept others waiting for long. Who adds a share up
//           changes from run to run; the order of the additions does not, nor do the bits.
//
// Tile      BM x BN x BK = 64 x 64 x 128 by default and SPLITS = 32 slices of K: a block for each pair of tile and
//           slice, the tiles of one slice side by side, so that blocks which run together share lines of A and B in L2.
//           4 tiles x 32 slices are 128 blocks; 33 slices are 132, one for each SM of an H200.
// Threads   4 warps, each 32 x 32 of the tile: cu/include/split_loop.cuh. Warps of the same number meet, and no others:
//           behind the loop there is no barrier of a block.
// Shared    4 stages x (16384 + 16384) = 131072 bytes, dynamic, 3 k-blocks in flight; with 3 stages two blocks fit on
//           an SM.
// Memory    workspace: for each warp of each tile a line of 128 bytes with its counts, zero before and after; then its
//           sums of all slices, WM x WN floats each.
// Numbers   LOOKS: how often a warp looks for the others. 0: the last adds up alone, for many tiles and few slices.
//           PDL: programmatic launch, sm_90: the next call's blocks come before this one has ended, do what they can
//           without memory, and wait. 1: when this call has multiplied; 2: as soon as all its blocks run. For 2 there
//           must be two places for blocks on each SM, and as many blocks as SMs: then each call has one place on each
//           SM. Were there fewer blocks, two of a call would come to one SM, and the call would take twice as long.
//           PREFETCH: those that wait prefetch into L2 what they will read, each line by one block, an instruction for
//           each PREFETCH bytes; 0: they do not.
// Limit     By count, for 128 x 128 x 16384: a block reads 127 KiB of operands, and writes and reads 16 KiB of sums.
//           Behind the loop, a chain of latencies: store, count, see the others' count, load, store.

#include "prefetch.cuh"
#include "programmatic.cuh"
#include "split_loop.cuh"

constexpr int ROW_PIECES = WN / MMA_N, PIECES = WM / MMA_M * ROW_PIECES;  // of a warp
constexpr int FOURS = PIECES * 32;                                        // fours of sums of a warp: one of each lane

// A warp's sums are added up in chunks of LANES fours, by GROUPS groups of lanes that have every GROUPS-th slice each.
// Shares are chunks dealt out in turn. As small as there are shares, or so large that few lanes have to join.
__host__ __device__ constexpr int lanes_of_chunk() {
    int lanes = LOOKS == 0 && SPLITS > 32 ? 16 : 32;
    while (LOOKS > 0 && lanes / 2 * SPLITS >= FOURS) lanes /= 2;
    return lanes;
}
constexpr int LANES = lanes_of_chunk(), GROUPS = 32 / LANES, CHUNKS = FOURS / LANES;
constexpr int EACH = (SPLITS + GROUPS - 1) / GROUPS;  // slices of a group

// Chunks that a warp that is alone adds up at a time: a lane has up to 32 loads of 16 bytes in flight.
constexpr int FIT = 32 < EACH ? 1 : 32 / EACH, TOGETHER = LOOKS > 0 ? 1 : FIT < CHUNKS ? FIT : CHUNKS;
static_assert(CHUNKS % TOGETHER == 0, "as many chunks each time");

// Two counts in a word: the warps that have come, and above them those that do not look at it any more.
constexpr unsigned COME = 1, GONE = 1 << 16;
__device__ __forceinline__ int come(unsigned word) { return word % GONE; }
__device__ __forceinline__ int gone(unsigned word) { return word / GONE; }

struct Meeting {
    int share;  // to be added up; -1: none
    int left;   // so many of the shares 0, 1 ... have been left to this warp as well
};

// Counts this warp in, and looks LOOKS times for the others. A share is left only after all those before it, so that a
// number says which have been; a warp that waits to leave waits for one that runs.
// .release: what the warp wrote before is visible to whoever sees the count. .acquire: and the reverse. PTX ISA,
// 'Memory Consistency Model'.
__device__ __forceinline__ Meeting meet(unsigned* word) {
    unsigned to_do = 0;
    __syncwarp();  // all lanes have written before the first says so
    if (threadIdx.x % 32 == 0) {
        unsigned before;
        asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;"
                     : "=r"(before) : "l"(word), "r"(COME) : "memory");
        const int share = come(before);
        unsigned now = before + COME;
        to_do = share == SPLITS - 1 ? before : share;
#pragma unroll 1
        for (int look = 0; LOOKS > 0 && come(now) < SPLITS && (look < LOOKS || gone(now) != share); ++look)
            asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(word) : "memory");
        if constexpr (LOOKS > 0) {
            if (come(now) < SPLITS) {  // it has looked often enough; but the last may have come at that moment
                asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], %2;"
                             : "=r"(now) : "l"(word), "r"(GONE) : "memory");
                __threadfence();
            } else {
                asm volatile("red.relaxed.gpu.global.add.u32 [%0], %1;" ::"l"(word), "r"(GONE) : "memory");
            }
        }
        if (come(now) < SPLITS) to_do = ~0u;
    }
    to_do = __shfl_sync(~0u, to_do, 0);
    __syncwarp();  // no lane reads before the first has seen them all
    return {to_do == ~0u ? -1 : come(to_do), gone(to_do)};
}

// The word as it is now. Whoever is the last to have gone sees all gone, and so may others.
__device__ __forceinline__ unsigned look_again(const unsigned* word) {
    unsigned now;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(word) : "memory");
    return now;
}

__device__ __forceinline__ float4 of_lane_xor(float4 a, int bits) {
    return make_float4(__shfl_xor_sync(~0u, a.x, bits), __shfl_xor_sync(~0u, a.y, bits),
                       __shfl_xor_sync(~0u, a.z, bits), __shfl_xor_sync(~0u, a.w, bits));
}

// Adds up TOGETHER chunks from `first` on: each group its slices in their order, then the groups in theirs.
__device__ __forceinline__ void add_up(int first, const float4* parts, const TileOfC& to, const Epilogue& epilogue) {
    const int lane = threadIdx.x % 32, group = lane / LANES, four = first * LANES + lane % LANES;
    float4 part[EACH][TOGETHER];
#pragma unroll
    for (int n = 0; n < EACH; ++n)
#pragma unroll
        for (int i = 0; i < TOGETHER; ++i) {
            const int slice = group + n * GROUPS;
            part[n][i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            if (n * GROUPS + GROUPS <= SPLITS || slice < SPLITS)  // past L1, which may hold what lay there before
                part[n][i] = __ldcg(parts + slice * FOURS + four + i * LANES);
        }
#pragma unroll
    for (int i = 0; i < TOGETHER; ++i) {
        float4 sum = part[0][i];
#pragma unroll
        for (int n = 1; n < EACH; ++n) sum = add(sum, part[n][i]);
#pragma unroll
        for (int bits = LANES; bits < 32; bits *= 2) sum = add(sum, of_lane_xor(sum, bits));
        const int piece = (four + i * LANES) / 32, m = piece / ROW_PIECES * MMA_M, n = piece % ROW_PIECES * MMA_N;
        if (group == 0) to.store(warp_row() + m, warp_column() + n, sum, epilogue, (four + i * LANES) % 32);
    }
}

// The block's slice of the panels that it shares with the others in its row or column of tiles.
__device__ __forceinline__ void prefetch_slice(const Matrices& of, const TileOfC& tile, Slice slice) {
    const int k = slice.first * BK, ks = min(slice.end * BK, of.K) - k;
    const int rows = min(BM, of.M - tile.m), columns = min(BN, of.N - tile.n);
    const long long a = A_TRANSPOSED ? (long long)k * of.lda + tile.m : (long long)tile.m * of.lda + k;
    const long long b = B_TRANSPOSED ? (long long)tile.n * of.ldb + k : (long long)k * of.ldb + tile.n;
    constexpr int STEP = PREFETCH > 0 ? PREFETCH : 128, BYTES = sizeof(Operand);
    prefetch_rows<STEP>(reinterpret_cast<const char*>(of.A + a), (long long)of.lda * BYTES, A_TRANSPOSED ? ks : rows,
                        (A_TRANSPOSED ? rows : ks) * BYTES, blockIdx.x, gridDim.x);
    prefetch_rows<STEP>(reinterpret_cast<const char*>(of.B + b), (long long)of.ldb * BYTES, B_TRANSPOSED ? columns : ks,
                        (B_TRANSPOSED ? ks : columns) * BYTES, blockIdx.y, gridDim.y);
}

// A and B without __restrict__, which would promise that nobody writes them while a kernel runs that comes early.
extern "C" __global__ void __launch_bounds__(THREADS, PDL == 2 ? 2 : 1)
gemm(const Operand* A, const Operand* B, Output* C,
     int M, int N, int K, int lda, int ldb, int ldc, unsigned* workspace, Epilogue epilogue) {
    extern __shared__ float4 shared[];
    if constexpr (PDL == 2) launch_dependents();

    const TileOfC to = {C, M, N, ldc, (int)blockIdx.y * BM, (int)blockIdx.x * BN};
    const Matrices operands = {A, B, M, N, K, lda, ldb};
    const Slice slice = slice_of_k(blockIdx.z, K);
    if constexpr (PREFETCH > 0) prefetch_slice(operands, to, slice);
    WarpSums sums;
    multiply_slice(operands, to.m, to.n, slice, shared_address(shared), sums, [] {
        if constexpr (PDL > 0) wait_for_prerequisites();  // what comes before may write A and B, and use the workspace
    });
    if constexpr (PDL == 1) launch_dependents();

    // [tile][warp][slice][piece][lane], four sums each.
    const int lane = threadIdx.x % 32, tiles = gridDim.x * gridDim.y;
    const int warp = (blockIdx.y * gridDim.x + blockIdx.x) * WARPS + threadIdx.x / 32;
    float4* parts = reinterpret_cast<float4*>(workspace + tiles * WARPS * 32) + (long long)warp * SPLITS * FOURS;
    float4* mine = parts + blockIdx.z * FOURS + lane;
#pragma unroll
    for (int piece = 0; piece < PIECES; ++piece) {
        const int i = piece / ROW_PIECES, j = piece % ROW_PIECES;
        const float4 sum = as_float4(sums.piece[i][j]);
        if constexpr (SPLITS == 1)
            to.store(warp_row() + i * MMA_M, warp_column() + j * MMA_N, sum, epilogue);
        else
            mine[piece * 32] = sum;
    }
    if constexpr (SPLITS > 1) {
        unsigned* word = workspace + warp * 32;
        const Meeting meeting = meet(word);
        if (meeting.share < 0) return;
        if constexpr (LOOKS == 0) {
#pragma unroll 1
            for (int first = 0; first < CHUNKS; first += TOGETHER) add_up(first, parts, to, epilogue);
            if (lane == 0) *word = 0;
        } else {
            const unsigned now = look_again(word);  // on its way while the warp adds up
#pragma unroll 1
            for (int share = meeting.share, left = meeting.left; share >= 0; share = --left)
#pragma unroll 1
                for (int chunk = share; chunk < CHUNKS; chunk += SPLITS) add_up(chunk, parts, to, epilogue);
            if (lane == 0 && gone(now) == SPLITS) *word = 0;
        }
    }
}
