// 14 wide: C = A B on Ampere's tensor cores, the fast one.
//
// Computes  C[m][n] = epilogue(sum over k of A[m][k] B[k][n]),  layouts NN, NT, TN, TT, any M, N, K.
// Idea      64 x 64 a warp: an element read from shared memory is multiplied 64 times, so reading takes fewer clocks
//           than multiplying. What is left is to do both at once: fragments are loaded one k-step before they are
//           multiplied, and copies from global memory are started a few at a time between the two.
//
// Tile      BM x BN x BK = 128 x 256 x 64 by default: 2 x 4 warps of WM x WN = 64 x 64, MIN_BLOCKS blocks an SM. Blocks
//           take tiles in groups of 8 rows, down each column of a group, so that those running at once share A and B
//           in L2.
// Threads   A warp's sums are 4 x 8 of mma's 16 x 8. Lane l holds rows l / 4 and l / 4 + 8 and columns 2 (l % 4) and
//           2 (l % 4) + 1 of each. Columns are walked forth and back (serpentine): where the row of fragments changes,
//           B's stays.
// Shared    STAGES x (A tile, B tile), 147456 bytes by default, dynamic, and after the last k-block a warp's WM x WN of
//           C, so that a lane stores 16 bytes and 8 lanes a line of 128.
//           A tile     A[BM][BK] where A's rows run along k, else A[BK][BM]; B tile likewise. Chunks of 16 bytes,
//                      swizzled: 8 lanes of cp.async, ldmatrix and stores of C meet 8 different groups of banks.
// Pipeline  One barrier a k-block, before the last k-step's loads, which are of the next block:
//
//               k-step     loads fragments of      starts copies of k-block + STAGES - 1
//               0          1                       share 1
//               ..         ..                      ..
//               last - 1   last                    last share, which closes the group
//               last       next block's 0          share 0 of the block after, behind the barrier
//
// Registers 128 sums (64 in pairs of fp16) and two sets of 32 for fragments; one pointer an operand walks over its
//           rows. Both bodies (below) leave their sums to one epilogue.
// PDL       1: programmatic launch, sm_90. The next call's blocks come as SMs get free, do what needs no memory, and
//           wait for the end of this call. A and B are no __restrict__ pointers: that would promise the compiler that
//           nobody writes them while a block runs, and a block that waits runs early.
// Tails     The last k-block, zeros where it ends early, is multiplied first, so that the loop tests rows or columns
//           alone. Where rows of A or B do not begin at multiples of 16 bytes a second body copies element by element.
//           C is stored by elements where 16 bytes do not fit.
// Limit     On an A100 the tensor cores. On sm_90 mma.sync reaches two thirds of wgmma's rate, and the copies take
//           shared memory from ldmatrix.

#include "epilogue.cuh"
#include "mma.cuh"
#include "operand_tile.cuh"
#include "programmatic.cuh"
#include "tile_order.cuh"

constexpr int WARPS_N = BN / WN, THREADS = BM / WM * WARPS_N * 32;
constexpr int PIECES_M = WM / 16, PIECES_N = WN / 16, COLUMNS = WN / MMA_N;
constexpr int STEPS = BK / MMA_K;
constexpr int RASTER = 8;  // rows of tiles in a group
typedef OperandTile<BM, BK, !A_TRANSPOSED> TileA;
typedef OperandTile<BN, BK, B_TRANSPOSED> TileB;
constexpr unsigned STAGE_BYTES = TileA::BYTES + TileB::BYTES, RING_BYTES = STAGES * STAGE_BYTES;
constexpr int ROW_BYTES_OF_C = WN * sizeof(Output), CHUNKS_OF_C = ROW_BYTES_OF_C / CHUNK_BYTES;
static_assert(BM % WM == 0 && BN % WN == 0 && 64 % WM == 0 && WM % 16 == 0 && 64 % WN == 0 && WN % 32 == 0,
              "whole warps, each within 128 bytes of a row");
static_assert(STEPS % 2 == 0, "two sets of fragments take turns, also from one k-block to the next");
static_assert(STAGES >= 2, "one stage is multiplied while others are on their way");
static_assert(RING_BYTES >= BM * BN * sizeof(Output), "C takes the ring's place");

// Both operands' copies of k-block after k-block.
template <bool ALIGNED>
struct Copies {
    typedef TileCopies<TileA, THREADS, ALIGNED> CopiesA;
    typedef TileCopies<TileB, THREADS, ALIGNED> CopiesB;
    static constexpr int PASSES_A = CopiesA::PASSES, PASSES_B = CopiesB::PASSES, PASSES = PASSES_A + PASSES_B;

    CopiesA a;
    CopiesB b;
    int blocks_left;

    // Share `share` of STEPS, a constant.
    __device__ __forceinline__ void start(int share, unsigned stage) {
        if constexpr (ALIGNED) {
#pragma unroll
            for (int pass = share * PASSES / STEPS; pass < (share + 1) * PASSES / STEPS; ++pass)
                if (pass < PASSES_A)
                    a.start(pass, stage);
                else
                    b.start(pass - PASSES_A, stage);
        } else if (share == 0) {  // all at once, in few registers: they take what the fragments leave
#pragma unroll 1
            for (int pass = 0; pass < PASSES_A; ++pass) a.start(pass, stage);
#pragma unroll 1
            for (int pass = 0; pass < PASSES_B; ++pass) b.start(pass, stage);
        }
    }

    // Closes the group of a block. Behind the last there are only zeros.
    __device__ __forceinline__ void finish() {
        cp_async_commit();
        if (--blocks_left <= 0) {
            a.end();
            b.end();
        }
    }
};

// A warp's operands of one k-step.
struct Fragments {
    unsigned a[PIECES_M][4], b[COLUMNS][2];

    __device__ __forceinline__ void load(unsigned lane_a, unsigned lane_b, int step) {
#pragma unroll
        for (int i = 0; i < PIECES_M; ++i) load_fragment<TileA>(a[i], lane_a, i, step);
#pragma unroll
        for (int j = 0; j < PIECES_N; ++j) {
            unsigned two[4];
            load_fragment<TileB>(two, lane_b, j, step);
            b[2 * j][0] = two[0], b[2 * j][1] = two[1];
            b[2 * j + 1][0] = two[2], b[2 * j + 1][1] = two[3];
        }
    }
};

__device__ __forceinline__ void multiply(const Fragments& operands, Sums (&acc)[PIECES_M][COLUMNS]) {
#pragma unroll
    for (int i = 0; i < PIECES_M; ++i)
#pragma unroll
        for (int turn = 0; turn < COLUMNS; ++turn) {
            const int j = i % 2 ? COLUMNS - 1 - turn : turn;
            mma(acc[i][j], operands.a[i], operands.b[j]);
        }
}

// A warp's sums, whose first is C[m][n], through `room` of shared memory to C.
__device__ __forceinline__ void store_warp_tile(const Sums (&acc)[PIECES_M][COLUMNS], char* room, Output* C, int m,
                                                int n, int M, int N, int ldc, const Epilogue& epilogue) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int j = 0; j < COLUMNS; ++j) {
#pragma unroll
        for (int half = 0; half < WM / 8; ++half) {
            const int row = 8 * half + lane / 4, column = 8 * j + lane % 4 * 2;
            float value[2];
#pragma unroll
            for (int e = 0; e < 2; ++e) {  // beyond the edge an epilogue reads what it does at the edge; none is stored
                const float sum = acc[half / 2][j].at(half % 2 * 2 + e);
                value[e] = epilogue(sum, min(m + row, M - 1), min(n + column + e, N - 1));
            }
            *reinterpret_cast<unsigned*>(room + swizzled<ROW_BYTES_OF_C>(row, j) + lane % 4 * 4) =
                pack_output(value[0], value[1]);
        }
        __syncwarp();  // also, no addend of later columns is loaded yet: registers are short while all sums are there
    }

    constexpr int PASS_ROWS = 32 / CHUNKS_OF_C;
    const int first = lane / CHUNKS_OF_C, chunk = lane % CHUNKS_OF_C, column = n + 8 * chunk;
    const bool wide = rows_in_chunks(C, ldc, sizeof(Output)) && column + 8 <= N;
    Output* to = C + (long long)(m + first) * ldc + column;
#pragma unroll
    for (int row = 0; row < WM; row += PASS_ROWS, to += (long long)PASS_ROWS * ldc) {
        if (m + first + row >= M) break;
        const char* from = room + swizzled<ROW_BYTES_OF_C>(first + row, chunk);
        if (wide) {
            *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from);
        } else {
#pragma unroll 1
            for (int e = 0; e < min(8, N - column); ++e) to[e] = reinterpret_cast<const Output*>(from)[e];
        }
    }
}

// The sums of the tile at tile_m, tile_n.
template <bool ALIGNED>
__device__ __forceinline__ void product(const Operand* A, const Operand* B, int tile_m, int tile_n, int M, int N, int K,
                                        int lda, int ldb, unsigned ring, Sums (&acc)[PIECES_M][COLUMNS]) {
    const int warp = threadIdx.x / 32;
    const int blocks = (K + BK - 1) / BK, k_last = (blocks - 1) * BK;

    Copies<ALIGNED> copies = {
        {A, lda, tile_m, M, k_last, ring}, {B, ldb, tile_n, N, k_last, ring + TileA::BYTES}, blocks};
    copies.a.copy_short(K - k_last, 0);
    copies.b.copy_short(K - k_last, 0);
    copies.finish();
    copies.a.back(blocks * BK, lda);
    copies.b.back(blocks * BK, ldb);
#pragma unroll
    for (int stage = 1; stage < STAGES - 1; ++stage) {
#pragma unroll
        for (int share = 0; share < STEPS; ++share) copies.start(share, stage * STAGE_BYTES);
        copies.finish();
    }
    unsigned reading = 0, writing = (STAGES - 1) * STAGE_BYTES;
    copies.start(0, writing);
    cp_async_wait<STAGES - 2>();
    __syncthreads();

    const unsigned lane_a = ring + lane_row_of_a<TileA>(warp / WARPS_N * WM);
    const unsigned lane_b = ring + TileA::BYTES + lane_row_of_b<TileB>(warp % WARPS_N * WN);
    Fragments operands[2];
    operands[0].load(lane_a, lane_b, 0);
    for (int block = 0; block < blocks; ++block) {
#pragma unroll
        for (int step = 0; step < STEPS; ++step) {
            if (step + 1 == STEPS) {
                copies.finish();
                cp_async_wait<STAGES - 2>();
                __syncthreads();  // the next block is whole; everyone has loaded the last of this one
                writing = reading;
                reading = reading + STAGE_BYTES == RING_BYTES ? 0 : reading + STAGE_BYTES;
            }
            const int next = (step + 1) % STEPS;
            operands[next % 2].load(lane_a + reading, lane_b + reading, next);
            copies.start(next, writing);
            multiply(operands[step % 2], acc);
        }
    }
    cp_async_commit();
    cp_async_wait<0>();
    __syncthreads();  // nobody copies or loads any more
}

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
gemm(const Operand* A, const Operand* B, Output* C, int M, int N, int K, int lda, int ldb, int ldc,
     Epilogue epilogue) {
    extern __shared__ __align__(256) char shared[];
    if constexpr (PDL > 0) launch_dependents();
    const TileIndex tile = tile_of_block(blockIdx.x, (M + BM - 1) / BM, (N + BN - 1) / BN, RASTER);
    const int tile_m = tile.m * BM, tile_n = tile.n * BN;
    Sums acc[PIECES_M][COLUMNS];
    if constexpr (PDL > 0) wait_for_prerequisites();  // before the first read: the launch before may write A and B
    if (rows_in_chunks(A, lda, sizeof(Operand)) && rows_in_chunks(B, ldb, sizeof(Operand)))
        product<true>(A, B, tile_m, tile_n, M, N, K, lda, ldb, shared_address(shared), acc);
    else
        product<false>(A, B, tile_m, tile_n, M, N, K, lda, ldb, shared_address(shared), acc);

    const int warp = threadIdx.x / 32;
    store_warp_tile(acc, shared + warp * WM * ROW_BYTES_OF_C, C, tile_m + warp / WARPS_N * WM,
                    tile_n + warp % WARPS_N * WN, M, N, ldc, epilogue);
}
