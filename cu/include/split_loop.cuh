// One slice of K for one tile of C, on tensor cores: what 15 and 16 have in common. They differ in how slices meet.
//
// Tile      BM x BN of C; K is walked in k-blocks of BK, copied by cp.async, STAGES - 1 of them in flight.
// Warps     Each has WM x WN of the tile. KGROUPS > 1: that many copies of the warps take BK / KGROUPS of every k-block
//           each; their sums are joined at the end. A small tile so has enough warps, and still large warp tiles: a
//           warp reads WM + WN lines of shared memory for WM x WN sums.
// Shared    STAGES x (tile of A, tile of B), rows as in memory: BK elements where an operand is contiguous along k, BM
//           (BN) where it is along m (n). 16-byte chunk c of row r lies where chunk c ^ f(r) would. f differs among
//           rows that would share banks otherwise: so the 8 rows of an ldmatrix matrix lie in 8 groups of 4 banks.
//           Afterwards the sums: KGROUPS x BM rows of BN + 8 floats. The pad of 8 spreads the 4 rows that half a warp
//           stores to at a time over all banks.
// Tails     cp.async fills up with zeros what lies outside. Operands whose rows are not aligned to 16 bytes come
//           element by element through registers: a second body of the same code.
#pragma once

#include "cp_async.cuh"
#include "epilogue.cuh"
#include "ldmatrix.cuh"
#include "mma.cuh"

constexpr int WARPS_N = BN / WN;
constexpr int GROUP_WARPS = BM / WM * WARPS_N;
constexpr int THREADS = 32 * GROUP_WARPS * KGROUPS;
constexpr int K_SHARE = BK / KGROUPS;  // of a k-block, for one group of warps
constexpr int CHUNK = 8;               // elements in 16 bytes
static_assert(BM % WM == 0 && BN % WN == 0 && WM % 16 == 0 && WN % 16 == 0, "warps of whole 16 x 16");
static_assert(BK % KGROUPS == 0 && K_SHARE % MMA_K == 0, "a group of warps has whole steps of mma's k");
static_assert(STAGES >= 2 && SPLITS >= 1, "one k-block arrives while another is multiplied");

// The tile of one operand in shared memory: LINES of m or n by BK of k, of a matrix that is contiguous along k or along
// its lines.
template <int LINES, bool ALONG_K>
struct Panel {
    static constexpr int ROWS = ALONG_K ? LINES : BK;
    static constexpr int CHUNKS = (ALONG_K ? BK : LINES) / CHUNK;  // in a row
    static constexpr int BYTES = 2 * LINES * BK;
    static constexpr int ROWS_A_PASS = THREADS / CHUNKS;
    static constexpr int PASSES = ROWS / ROWS_A_PASS;
    static_assert((CHUNKS & (CHUNKS - 1)) == 0, "rows of 2^n chunks: an exclusive or stays inside");
    static_assert(THREADS % CHUNKS == 0 && ROWS % ROWS_A_PASS == 0, "all threads copy whole rows");

    // Where a chunk lies, in bytes. Rows of less than 128 bytes share their banks with fewer rows further on.
    static __device__ __forceinline__ unsigned at(int row, int chunk) {
        constexpr int APART = CHUNKS < 8 ? 8 / CHUNKS : 1, DISTINCT = CHUNKS < 8 ? CHUNKS : 8;
        return row * (CHUNKS * 16) + (chunk ^ row / APART % DISTINCT) * 16;
    }

    // Copies the panel from `line` and `k` on; zeros from `lines` and K on. A thread copies one chunk of every
    // ROWS_A_PASS-th row.
    template <bool WIDE>
    static __device__ __forceinline__ void copy(unsigned to, const Operand* matrix, int leading, int line, int lines,
                                                int k, int K) {
        const int row = threadIdx.x / CHUNKS, chunk = threadIdx.x % CHUNKS;
        const int first_row = (ALONG_K ? line : k) + row, column = (ALONG_K ? k : line) + chunk * CHUNK;
        const int rows = ALONG_K ? lines : K, columns = min(max((ALONG_K ? K : lines) - column, 0), CHUNK);
        const Operand* from = matrix + (long long)first_row * leading + column;
#pragma unroll
        for (int pass = 0; pass < PASSES; ++pass) {
            const int inside = first_row + pass * ROWS_A_PASS < rows ? columns : 0;
            const unsigned place = to + at(row + pass * ROWS_A_PASS, chunk);
            const Operand* source = inside ? from + (long long)pass * ROWS_A_PASS * leading : matrix;
            if constexpr (WIDE) {
                cp_async_16(place, source, 2 * inside);
            } else {
                unsigned word[4] = {};
#pragma unroll
                for (int element = 0; element < CHUNK; ++element)
                    if (element < inside) word[element / 2] |= (unsigned)source[element] << element % 2 * 16;
                asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(place), "r"(word[0]), "r"(word[1]),
                             "r"(word[2]), "r"(word[3]) : "memory");
            }
        }
    }

    // The four 8 x 8 matrices of 16 lines by 16 of k. Their order: LINES_FIRST, lines 0 and 8 of k 0, then of k 8, as
    // mma wants its A; else k 0 and 8 of line 0, then of line 8, which are two of its B.
    template <bool LINES_FIRST>
    static __device__ __forceinline__ void load(unsigned (&matrices)[4], unsigned panel, int line, int k) {
        const int lane = threadIdx.x % 32, in_matrix = lane % 8, first = lane / 8 % 2 * 8, second = lane / 16 * 8;
        line += LINES_FIRST ? first : second;
        k += LINES_FIRST ? second : first;
        if constexpr (ALONG_K)
            ldmatrix_x4(matrices, panel + at(line + in_matrix, k / CHUNK));
        else  // a row in shared memory is a k: ldmatrix turns it
            ldmatrix_x4_trans(matrices, panel + at(k + in_matrix, line / CHUNK));
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

struct Slice {
    int first, end;  // k-blocks
};

// The k-blocks of slice number `slice`: as many as the others, or one more. With fewer k-blocks than slices, some have
// none, and sum up to zero.
__device__ __forceinline__ Slice slice_of_k(int slice, int K) {
    const long long blocks = (K + (long long)BK - 1) / BK;
    return {(int)(blocks * slice / SPLITS), (int)(blocks * (slice + 1) / SPLITS)};
}

// A warp's sums of its WM x WN, over the k-blocks of a slice.
struct WarpSums {
    Sums tile[WM / MMA_M][WN / MMA_N];
};

template <bool WIDE>
__device__ __forceinline__ void multiply_slice(const Matrices& of, int tile_m, int tile_n, Slice slice, unsigned ring,
                                               WarpSums& sums) {
    const int warp = threadIdx.x / 32 % GROUP_WARPS, group = threadIdx.x / (32 * GROUP_WARPS);
    const int warp_m = warp / WARPS_N * WM, warp_n = warp % WARPS_N * WN;

    auto copy = [&](int k_block, int stage) {
        if (k_block < slice.end) {
            const unsigned to = ring + stage * STAGE_BYTES;
            PanelA::copy<WIDE>(to, of.A, of.lda, tile_m, of.M, k_block * BK, of.K);
            PanelB::copy<WIDE>(to + PanelA::BYTES, of.B, of.ldb, tile_n, of.N, k_block * BK, of.K);
        }
        cp_async_commit();  // an empty group where there is nothing: the wait below counts groups
    };

#pragma unroll
    for (int stage = 0; stage < STAGES - 1; ++stage) copy(slice.first + stage, stage);

    int stage = 0, free_stage = STAGES - 1;
    for (int k_block = slice.first; k_block < slice.end; ++k_block) {
        cp_async_wait<STAGES - 2>();
        __syncthreads();  // the k-block is whole for everyone; everyone is done with the one before it
        copy(k_block + STAGES - 1, free_stage);
        const unsigned panel_a = ring + stage * STAGE_BYTES, panel_b = panel_a + PanelA::BYTES;
#pragma unroll
        for (int step = 0; step < K_SHARE; step += MMA_K) {
            const int k = group * K_SHARE + step;
            unsigned a[WM / MMA_M][4], b[WN / 16][4];
#pragma unroll
            for (int i = 0; i < WM / MMA_M; ++i) PanelA::load<true>(a[i], panel_a, warp_m + i * MMA_M, k);
#pragma unroll
            for (int j = 0; j < WN / 16; ++j) PanelB::load<false>(b[j], panel_b, warp_n + j * 16, k);
#pragma unroll
            for (int i = 0; i < WM / MMA_M; ++i)
#pragma unroll
                for (int j = 0; j < WN / MMA_N; ++j) {
                    const unsigned pair[2] = {b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]};
                    mma(sums.tile[i][j], a[i], pair);
                }
        }
        free_stage = stage;
        stage = stage + 1 == STAGES ? 0 : stage + 1;
    }
}

// From here on the tile is fours: four neighbouring sums of a row, numbered along the rows.
constexpr int ROW_FOURS = BN / 4, FOURS = BM * ROW_FOURS;
constexpr int FOURS_A_THREAD = FOURS / THREADS;
static_assert(FOURS % THREADS == 0, "as many fours for every thread");
constexpr int SUMS_PITCH = BN + 8;

// Number `pass` of a thread's fours: neighbouring threads have neighbouring fours.
__device__ __forceinline__ int four_of_thread(int pass) { return pass * THREADS + threadIdx.x; }

// Lays the sums of all warps down in shared memory, where the ring was.
__device__ __forceinline__ void lay_down(const WarpSums& sums, float* shared) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % GROUP_WARPS, group = threadIdx.x / (32 * GROUP_WARPS);
    const int row = group * BM + warp / WARPS_N * WM + lane / 4, column = warp % WARPS_N * WN + lane % 4 * 2;
    cp_async_wait<0>();
    __syncthreads();  // nobody reads the last k-block any more
#pragma unroll
    for (int i = 0; i < WM / MMA_M; ++i)
#pragma unroll
        for (int j = 0; j < WN / MMA_N; ++j) {
            float* to = shared + (row + i * MMA_M) * SUMS_PITCH + column + j * MMA_N;
            const Sums& sum = sums.tile[i][j];
            *reinterpret_cast<float2*>(to) = make_float2(sum.at(0), sum.at(1));
            *reinterpret_cast<float2*>(to + 8 * SUMS_PITCH) = make_float2(sum.at(2), sum.at(3));
        }
    __syncthreads();  // all are there
}

__device__ __forceinline__ float4 add(float4 a, float4 b) {
    return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

// A four of the tile, summed over the groups of warps in their order.
__device__ __forceinline__ float4 join_groups(const float* shared, int four) {
    const float* from = shared + four / ROW_FOURS * SUMS_PITCH + four % ROW_FOURS * 4;
    float4 sum = *reinterpret_cast<const float4*>(from);
#pragma unroll
    for (int group = 1; group < KGROUPS; ++group)
        sum = add(sum, *reinterpret_cast<const float4*>(from + group * BM * SUMS_PITCH));
    return sum;
}

// A four of the tile, summed over the slices in their order, whoever asks. `parts`: the tile's first slice's sums, the
// other slices' behind them. Read past L1, which may hold what lay there before.
__device__ __forceinline__ float4 join_slices(const float4* parts, int four) {
    float4 sum = __ldcg(parts + four);
#pragma unroll 16
    for (int slice = 1; slice < SPLITS; ++slice) sum = add(sum, __ldcg(parts + slice * FOURS + four));
    return sum;
}

// Finishes a four of the tile and stores it: 8 bytes at once where C's rows allow it.
__device__ __forceinline__ void finish(float4 sum, Output* C, int M, int N, int ldc, int tile_m, int tile_n, int four,
                                       const Epilogue& epilogue) {
    const int m = tile_m + four / ROW_FOURS, n = tile_n + four % ROW_FOURS * 4;
    if (m >= M) return;
    const float x[4] = {sum.x, sum.y, sum.z, sum.w};
    float value[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) value[j] = n + j < N ? epilogue(x[j], m, n + j) : 0.0f;
    Output* to = C + (long long)m * ldc + n;
    if (n + 4 <= N && ldc % 4 == 0 && reinterpret_cast<unsigned long long>(C) % 8 == 0) {
        *reinterpret_cast<uint2*>(to) = make_uint2(pack_output(value[0], value[1]), pack_output(value[2], value[3]));
        return;
    }
#pragma unroll
    for (int j = 0; j < 4; ++j)
        if (n + j < N) to[j] = to_output(value[j]);
}
