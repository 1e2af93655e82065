// One slice of K for one tile of C, on tensor cores: what 15 and 16 have in common. They differ in how slices meet.
//
// Tile      BM x BN of C; K is walked in k-blocks of BK, copied by cp.async, STAGES - 1 of them in flight.
// Warps     KGROUPS groups, each of which has the whole tile, WM x WN a warp, and multiplies its own 1 / KGROUPS of
//           every k-block. All warps copy. With KGROUPS > 1, cu/include/split_join.cuh joins the groups' sums.
// Parts     A warp's WM x WN are PARTS_M x PARTS_N parts, as many as groups, of PART_M x PART_N. In registers the parts
//           are numbered from the one that the warp keeps: of group g, part i is i ^ g of the tile's. So what a warp
//           keeps is always in the same registers.
// Shared    STAGES x (tile of A, tile of B), rows as in memory: BK elements where an operand is contiguous along k, BM
//           (BN) where it is along m (n). 16-byte chunk c of row r lies where chunk c ^ f(r) would. f differs among
//           rows that would share banks otherwise: so the 8 rows of an ldmatrix matrix lie in 8 groups of 4 banks.
// Sums      A piece is 16 x 8 of the tile, as a warp holds it after mma: four sums a lane, 512 bytes. Warps hand pieces
//           on as they are, 16 bytes a lane, so that shared memory is not needed on the way out.
// Code      At a few microseconds a call, instructions come from far away too. So copies stand in the code once, in one
//           loop whose first passes only copy, and what changes from pass to pass is added to, not computed anew.
// Tails     cp.async writes zeros for what lies outside. A chunk that is partly outside comes element by element
//           through registers, and so does everything where rows are not aligned to 16 bytes.
#pragma once

#include "cp_async.cuh"
#include "ldmatrix.cuh"
#include "mma.cuh"
#include "split_tile.cuh"

#if !defined(KGROUPS)
#define KGROUPS 1  // all warps multiply every k: groups are 16_split_k.cu's
#endif

constexpr int WARPS_N = BN / WN, GROUP_WARPS = BM / WM * WARPS_N;
constexpr int WARPS = KGROUPS * GROUP_WARPS, THREADS = 32 * WARPS;
constexpr int GROUP_K = BK / KGROUPS;  // of a k-block, for one group
constexpr int PARTS_M = KGROUPS < WM / 16 ? KGROUPS : WM / 16, PARTS_N = KGROUPS / PARTS_M;
constexpr int PART_M = WM / PARTS_M, PART_N = WN / PARTS_N;
constexpr int CHUNK = 8;  // elements in 16 bytes
static_assert(BM % WM == 0 && BN % WN == 0 && WM % 16 == 0 && WN % 16 == 0, "warps of whole 16 x 16");
static_assert(PARTS_M * PARTS_N == KGROUPS && PART_M % 16 == 0 && PART_N % 16 == 0, "each group whole 16 x 16");
static_assert(KGROUPS == 1 || ((KGROUPS & (KGROUPS - 1)) == 0 && (WM & (WM - 1)) == 0 && (WN & (WN - 1)) == 0),
              "2^n groups, of 2^n lines a warp: an exclusive or stays inside");
static_assert(BK % (KGROUPS * MMA_K) == 0, "whole steps of mma's k for each group");
static_assert(STAGES >= 2 && SPLITS >= 1, "one k-block arrives while another is multiplied");

// The tile of one operand in shared memory: LINES of m or n by BK of k, of a matrix that is contiguous along k or along
// its lines.
template <int LINES, bool ALONG_K>
struct Panel {
    static constexpr int ROWS = ALONG_K ? LINES : BK;
    static constexpr int CHUNKS = (ALONG_K ? BK : LINES) / CHUNK;  // in a row
    static constexpr int BYTES = 2 * LINES * BK;
    static constexpr int ROWS_A_PASS = THREADS / CHUNKS;
    static constexpr int PASSES = ROWS / ROWS_A_PASS, PASS_BYTES = ROWS_A_PASS * CHUNKS * 16;
    static_assert((CHUNKS & (CHUNKS - 1)) == 0, "rows of 2^n chunks: an exclusive or stays inside");
    static_assert(THREADS % CHUNKS == 0 && ROWS % ROWS_A_PASS == 0, "all threads copy whole rows");

    // Where a chunk lies, in bytes. Rows of less than 128 bytes share their banks with fewer rows further on.
    static __device__ __forceinline__ unsigned at(int row, int chunk) {
        return row * (CHUNKS * 16) + (chunk ^ row / APART % DISTINCT) * 16;
    }
    static constexpr int APART = CHUNKS < 8 ? 8 / CHUNKS : 1, DISTINCT = CHUNKS < 8 ? CHUNKS : 8;
    static_assert(ROWS_A_PASS % (APART * DISTINCT) == 0, "the swizzle is the same in all rows of a thread");

    // What this thread copies of the next k-block: one chunk of every ROWS_A_PASS-th row.
    const Operand* from;
    long long next_row, next_block;  // elements from one to the next
    unsigned place;                  // in the panel
    int rows, columns;               // from here to the end of the matrix; none or fewer where the chunk lies outside
    bool wide;                       // 16 bytes at a time

    // The panel from `line` on, of `lines`, and from `k` on, of K.
    __device__ __forceinline__ Panel(const Operand* matrix, int leading, int line, int lines, int k, int K, bool wide)
        : wide(wide) {
        const int row = (ALONG_K ? line : k) + threadIdx.x / CHUNKS;
        const int column = (ALONG_K ? k : line) + threadIdx.x % CHUNKS * CHUNK;
        from = matrix + (long long)row * leading + column;
        next_row = (long long)ROWS_A_PASS * leading;
        next_block = ALONG_K ? BK : (long long)BK * leading;
        place = at(threadIdx.x / CHUNKS, threadIdx.x % CHUNKS);
        rows = (ALONG_K ? lines : K) - row;
        columns = (ALONG_K ? K : lines) - column;
    }

    // Copies the k-block, zeros where it lies outside, and goes on to the next.
    __device__ __forceinline__ void copy(unsigned panel) {
        const Operand* source = from;
        unsigned to = panel + place;
        if (wide && (columns >= CHUNK || columns <= 0)) {
#pragma unroll
            for (int pass = 0; pass < PASSES; ++pass, source += next_row)
                cp_async_16_if(pass * ROWS_A_PASS < rows && columns > 0, to + pass * PASS_BYTES, source);
        } else {
#pragma unroll 1
            for (int pass = 0; pass < PASSES; ++pass, source += next_row, to += PASS_BYTES) {
                const int inside = pass * ROWS_A_PASS < rows ? columns : 0;
                unsigned word[4] = {};
#pragma unroll
                for (int element = 0; element < CHUNK; ++element)
                    if (element < inside) word[element / 2] |= (unsigned)source[element] << element % 2 * 16;
                asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(word[0]), "r"(word[1]),
                             "r"(word[2]), "r"(word[3]) : "memory");
            }
        }
        from += next_block;
        (ALONG_K ? columns : rows) -= BK;
    }

    // Where the row lies that this lane names to ldmatrix, of 16 lines from `line` on by 16 of k from `first_k` on:
    // four 8 x 8 matrices. Their order: LINES_FIRST, lines 0 and 8 of k 0, then of k 8, as mma wants its A; else k 0
    // and 8 of line 0, then of line 8, which are two of its B.
    template <bool LINES_FIRST>
    static __device__ __forceinline__ unsigned place_of_lane(int line, int first_k) {
        const int lane = threadIdx.x % 32, in_matrix = lane % 8, first = lane / 8 % 2 * 8, second = lane / 16 * 8;
        line += LINES_FIRST ? first : second;
        const int k = first_k + (LINES_FIRST ? second : first);
        return ALONG_K ? at(line + in_matrix, k / CHUNK) : at(k + in_matrix, line / CHUNK);
    }

    // The four matrices that are 16 i lines and k from those of `place`. 16 rows further on the swizzle is the same;
    // chunks further on in a row are an exclusive or away, as the swizzle is one itself, and so are parts, of PART
    // lines: number i of the registers' is number i ^ that of `place`, of the tile's.
    template <int PART>
    static __device__ __forceinline__ void load(unsigned (&matrices)[4], unsigned panel, unsigned place, int i,
                                                int k) {
        const int parts = 16 * i / PART * PART, rows = ALONG_K ? 16 * i - parts : k;
        const int bytes = ALONG_K ? 2 * k + parts * (CHUNKS * 16) : 32 * i;
        const unsigned from = panel + (place ^ bytes) + rows * (CHUNKS * 16);
        if constexpr (ALONG_K)
            ldmatrix_x4(matrices, from);
        else  // a row in shared memory is a k: ldmatrix turns it
            ldmatrix_x4_trans(matrices, from);
    }
};

typedef Panel<BM, !A_TRANSPOSED> PanelA;
typedef Panel<BN, B_TRANSPOSED> PanelB;
constexpr int STAGE_BYTES = PanelA::BYTES + PanelB::BYTES;

// The operands, and what of them a block multiplies.
struct Matrices {
    const Operand* A;
    const Operand* B;
    int M, N, K, lda, ldb;

    // Whether every row of A and B starts at a multiple of 16 bytes.
    __device__ __forceinline__ bool wide() const {
        const unsigned long long addresses = reinterpret_cast<unsigned long long>(A) |
                                             reinterpret_cast<unsigned long long>(B);
        return addresses % 16 == 0 && (lda | ldb) % CHUNK == 0;
    }
};

// A warp's sums of its WM x WN, over the k-blocks of a slice.
struct WarpSums {
    Sums piece[WM / MMA_M][WN / MMA_N];
};

// This warp's group, and its number there.
__device__ __forceinline__ int group_of_warp() { return KGROUPS == 1 ? 0 : threadIdx.x / (32 * GROUP_WARPS); }
__device__ __forceinline__ int warp_in_group() {
    return KGROUPS == 1 ? threadIdx.x / 32 : threadIdx.x / 32 % GROUP_WARPS;
}

// Where this warp's sums begin in the tile.
__device__ __forceinline__ int warp_row() { return warp_in_group() / WARPS_N * WM; }
__device__ __forceinline__ int warp_column() { return warp_in_group() % WARPS_N * WN; }

// Where those begin that it keeps.
__device__ __forceinline__ int part_row() { return warp_row() + group_of_warp() / PARTS_N * PART_M; }
__device__ __forceinline__ int part_column() { return warp_column() + group_of_warp() % PARTS_N * PART_N; }

struct AtOnce {
    __device__ __forceinline__ void operator()() const {}
};

// `ready()` returns when the operands can be read; what depends on parameters alone comes before it. Returns where, in
// bytes from the ring's begin and round its end, STAGES - 1 stages begin that nobody reads any more.
template <class Ready = AtOnce>
__device__ __forceinline__ unsigned multiply_slice(const Matrices& of, int tile_m, int tile_n, Slice slice,
                                                   unsigned ring, WarpSums& sums, Ready ready = {}) {
    const int first_k = group_of_warp() * GROUP_K;
    const unsigned place_a = PanelA::template place_of_lane<true>(part_row(), first_k);
    const unsigned place_b = PanelB::template place_of_lane<false>(part_column(), first_k);
    const unsigned ring_end = ring + STAGES * STAGE_BYTES;
    const bool wide = of.wide();
    PanelA a_panel(of.A, of.lda, tile_m, of.M, slice.first * BK, of.K, wide);
    PanelB b_panel(of.B, of.ldb, tile_n, of.N, slice.first * BK, of.K, wide);
    int copies = slice.end - slice.first;
    ready();

    unsigned fill = ring, read = ring;
#pragma unroll 1
    for (int pass = 1 - STAGES, passes = copies; pass < passes; ++pass) {
        if (pass >= 0) {
            cp_async_wait<STAGES - 2>();
            __syncthreads();  // the k-block is whole for everyone; everyone is done with the one before it
        }
        if (copies > 0) {
            --copies;
            a_panel.copy(fill);
            b_panel.copy(fill + PanelA::BYTES);
            fill = fill + STAGE_BYTES == ring_end ? ring : fill + STAGE_BYTES;
        }
        cp_async_commit();  // an empty group where there is nothing: the wait above counts groups
        if (pass < 0) continue;

        const unsigned panel_a = read, panel_b = read + PanelA::BYTES;
        read = read + STAGE_BYTES == ring_end ? ring : read + STAGE_BYTES;
#pragma unroll
        for (int k = 0; k < GROUP_K; k += MMA_K) {
            unsigned a[WM / MMA_M][4], b[WN / 16][4];
#pragma unroll
            for (int i = 0; i < WM / MMA_M; ++i) PanelA::template load<PART_M>(a[i], panel_a, place_a, i, k);
#pragma unroll
            for (int j = 0; j < WN / 16; ++j) PanelB::template load<PART_N>(b[j], panel_b, place_b, j, k);
#pragma unroll
            for (int i = 0; i < WM / MMA_M; ++i)
#pragma unroll
                for (int j = 0; j < WN / MMA_N; ++j) {
                    const unsigned pair[2] = {b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]};
                    mma(sums.piece[i][j], a[i], pair);
                }
        }
    }
    return read - ring;
}

__device__ __forceinline__ float4 as_float4(const Sums& sums) {
    return make_float4(sums.at(0), sums.at(1), sums.at(2), sums.at(3));
}
