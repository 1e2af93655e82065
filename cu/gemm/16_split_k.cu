// 16 split-K: C = A B on tensor cores for few tiles and a long K; who is there adds up, and nobody must wait.
//
// Computes  C[m][n] = epilogue(sum over k),  row-major, layouts NN, NT, TN, TT, any M, N, K, sums in fp32.
// Idea      15 waits until every block has come: a barrier, and a launch that promises that all blocks run at once.
//           Here no launch promises anything. A warp writes its sums to the workspace, counts itself in, and looks a
//           few times whether those of other slices have come: cu/include/split_sums.cuh. If so, all add up a share
//           each, as in 15; if not, it leaves its share to the last to come, and ends. So nobody waits for one who has
//           yet to run, and the last has more to do only where it has kept others waiting for long. Who adds a share
//           up changes from run to run; the order of the additions does not, nor do the bits.
//
// Tile      BM x BN x BK = 64 x 64 x 128 by default and SPLITS = 32 slices of K: a block for each pair of tile and
//           slice, the tiles of one slice side by side, so that blocks which run together share lines of A and B in L2.
//           4 tiles x 32 slices are 128 blocks; 33 slices are 132, one for each SM of an H200.
// Threads   4 warps, each 32 x 32 of the tile: cu/include/split_loop.cuh. Warps of the same number meet, and no others:
//           behind the loop there is no barrier of a block. With KGROUPS > 1 there are so many such groups of warps,
//           each with its own part of every k-block's k: larger parts of the tile for as many warps, which read less
//           of shared memory, or more warps for as large parts. Then those of one place in the tile join their sums,
//           cu/include/split_join.cuh, and each goes on with a part of them, WM x WN / KGROUPS.
// Shared    4 stages x (16384 + 16384) = 131072 bytes, dynamic, 3 k-blocks in flight; with 3 stages two blocks fit on
//           an SM. KGROUPS > 1: behind the loop, sums that go from group to group, (KGROUPS - 1) x BM x BN floats, in
//           stages that nobody reads any more.
// Memory    workspace: for each warp of each tile a line of 128 bytes with its counts, zero before and after; then its
//           sums of all slices, WM x WN / KGROUPS floats each.
// Numbers   LOOKS: how often a warp looks for the others. 0: the last adds up alone, for many tiles and few slices.
//           PDL: programmatic launch, sm_90: the next call's blocks come before this one has ended, do what they can
//           without memory, and wait. 1: when this call has multiplied; 2: as soon as all its blocks run. For 2 there
//           must be two places for blocks on each SM, and as many blocks as SMs: then each call has one place on each
//           SM. Were there fewer blocks, two of a call would come to one SM, and the call would take twice as long.
//           PREFETCH: those that wait prefetch into L2 what they will read, each line by one block, an instruction for
//           each PREFETCH bytes; 0: they do not.
//           KGROUPS: groups of warps, 1 where a name does not say. The entry's last configuration, with KGROUPS = 4 and
//           LOOKS = 0, is that of ptx/gemm/16_split_k.ptx, where sums are joined and slices meet by blocks.
// Limit     By count, for 128 x 128 x 16384: a block reads 127 KiB of operands, and writes and reads 16 KiB of sums.
//           Behind the loop, a chain of latencies: store, see the others' count, load, store.

#include "comes_last.cuh"
#include "prefetch.cuh"
#include "programmatic.cuh"
#include "split_join.cuh"
#include "split_loop.cuh"
#include "split_sums.cuh"

// Chunks that a warp that is alone adds up at a time: a lane has up to 32 loads of 16 bytes in flight.
constexpr int FIT = 32 < EACH ? 1 : 32 / EACH, TOGETHER = FIT < CHUNKS ? FIT : CHUNKS;
static_assert(LOOKS > 0 || CHUNKS % TOGETHER == 0, "as many chunks each time");

// Adds up TOGETHER chunks from `first` on, all slices of which have come.
__device__ __forceinline__ void add_up_alone(int first, const float4* parts, const TileOfC& to,
                                             const Epilogue& epilogue) {
    const int lane = threadIdx.x % 32, group = lane / LANES, four = first * LANES + lane % LANES;
    Parts part[TOGETHER];
#pragma unroll
    for (int i = 0; i < TOGETHER; ++i) part[i].read(parts + group * FOURS + four + i * LANES);
#pragma unroll
    for (int i = 0; i < TOGETHER; ++i) {
        const int mine = four + i * LANES, piece = mine / 32;
        const float4 sum = part[i].sum();
        if (group == 0)
            to.store(piece / ROW_PIECES * PIECE_M, piece % ROW_PIECES * PIECE_N, sum, epilogue, mine % 32);
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
     int M, int N, int K, int lda, int ldb, int ldc, Count* workspace, Epilogue epilogue) {
    extern __shared__ float4 shared[];
    if constexpr (PDL == 2) launch_dependents();

    const TileOfC to = {C, M, N, ldc, (int)blockIdx.y * BM, (int)blockIdx.x * BN};
    const Matrices operands = {A, B, M, N, K, lda, ldb};
    const Slice slice = slice_of_k(blockIdx.z, K);
    if constexpr (PREFETCH > 0) prefetch_slice(operands, to, slice);
    WarpSums sums;
    const unsigned unread = multiply_slice(operands, to.m, to.n, slice, shared_address(shared), sums, [] {
        if constexpr (PDL > 0) wait_for_prerequisites();  // what comes before may write A and B, and use the workspace
    });
    if constexpr (PDL == 1) launch_dependents();
    if constexpr (KGROUPS > 1) join_groups(sums, shared, unread);

    const TileOfC mine = {C, M, N, ldc, to.m + part_row(), to.n + part_column()};
    const int warps = gridDim.x * gridDim.y * WARPS;
    const int warp = (blockIdx.y * gridDim.x + blockIdx.x) * WARPS + threadIdx.x / 32;
    float4* parts = parts_of_warp(workspace, warp, warps);
#pragma unroll
    for (int piece = 0; piece < PIECES; ++piece) {
        const int i = piece / ROW_PIECES, j = piece % ROW_PIECES;
        const float4 sum = as_float4(sums.piece[i][j]);
        if constexpr (SPLITS == 1)
            mine.store(i * PIECE_M, j * PIECE_N, sum, epilogue);
        else
            write_part(parts, blockIdx.z, piece, sum);
    }
    if constexpr (SPLITS > 1) {
        Count* count = workspace + warp * 16ll;
        if constexpr (LOOKS > 0) {
            add_up_together(count, parts, blockIdx.z, mine, epilogue);
        } else if (comes_last(reinterpret_cast<unsigned*>(count), SPLITS)) {
#pragma unroll 1
            for (int first = 0; first < CHUNKS; first += TOGETHER) add_up_alone(first, parts, mine, epilogue);
        }
    }
}
