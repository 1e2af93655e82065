// A tile of A or B in shared memory: how a block copies it there, and where ldmatrix finds a fragment.
//
// SIDE elements of M or N by BK of k, in rows as they are in global memory: ALONG_K, a row is BK elements of one m or
// n (A of NN and NT, B of NT and TT); otherwise SIDE elements of one k. Rows are whole chunks of 16 bytes, swizzled.
//
// The last k-block, which may be short, is copied first and counts what it may read; of all others every k is inside.
// Chunks that lie outside along m or n are zero. One that ends outside is copied whole, but never of the matrix's last
// row, which belongs to the short block: what is read is the room between rows, and what it is multiplied into are
// sums beyond C's edge, which nobody stores.
#pragma once

#include "cp_async.cuh"
#include "element.cuh"
#include "ldmatrix.cuh"
#include "swizzle.cuh"

constexpr int CHUNK = CHUNK_BYTES / sizeof(Operand);  // elements

template <int SIDE, int BK_, bool ALONG_K_>
struct OperandTile {
    static constexpr bool ALONG_K = ALONG_K_;
    static constexpr int K = BK_;
    static constexpr int ROWS = ALONG_K ? SIDE : BK_;
    static constexpr int CHUNKS = (ALONG_K ? BK_ : SIDE) / CHUNK;  // of a row
    static constexpr int ROW_BYTES = CHUNKS * CHUNK_BYTES;
    static constexpr int BYTES = ROWS * ROW_BYTES;
    static_assert(ALONG_K ? ROW_BYTES <= 256 : ROW_BYTES % 128 == 0, "a fragment's chunks differ by XOR, below");
    static_assert(ALONG_K || sizeof(Operand) == 2, "ldmatrix transposes elements of 16 bits");
    static_assert(BYTES % 256 == 0, "tiles begin at multiples of 256 bytes");
};

// Whether every row begins at a multiple of 16 bytes.
__device__ __forceinline__ bool rows_in_chunks(const void* matrix, int leading, int element_bytes) {
    return (reinterpret_cast<unsigned long long>(matrix) | (unsigned)leading * (unsigned)element_bytes) % 16 == 0;
}

// The first `count` elements of a chunk, and zeros. ALIGNED: `from` is a multiple of 16 bytes, and nobody waits for the
// copy; otherwise element by element, through registers.
template <bool ALIGNED>
__device__ __forceinline__ void copy_chunk(unsigned to, const Operand* from, int count) {
    if constexpr (ALIGNED) {
        cp_async_16(to, from, count * (int)sizeof(Operand));
    } else {
        union {
            Operand element[CHUNK];
            uint4 words;
        } chunk;
#pragma unroll
        for (int e = 0; e < CHUNK; ++e) chunk.element[e] = e < count ? from[e] : Operand(0);
        asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(chunk.words.x), "r"(chunk.words.y),
                     "r"(chunk.words.z), "r"(chunk.words.w) : "memory");
    }
}

// A thread's share of the copies of one operand: in each pass one chunk, PASS_ROWS rows below that of the last.
template <class Tile, int THREADS, bool ALIGNED>
struct TileCopies {
    static constexpr int PASS_ROWS = THREADS / Tile::CHUNKS, PASSES = Tile::ROWS / PASS_ROWS;
    static_assert(THREADS % Tile::CHUNKS == 0 && Tile::ROWS % PASS_ROWS == 0, "whole passes of whole rows");
    static_assert(PASS_ROWS % 8 == 0, "a thread's chunks are swizzled alike");

    const Operand* from;     // its chunk in the next pass
    long long step, rewind;  // elements to the next pass, and from the last to the first of the next k-block
    int left;                // of m or n, from this thread's first on
    int k;                   // in the tile, of its chunk's first element
    unsigned to;             // where its first chunk goes, shared

    // The tile at `side` of m or n, which ends at `side_end`, and at k_first.
    __device__ __forceinline__ TileCopies(const Operand* matrix, int leading, int side, int side_end, int k_first,
                                          unsigned tile) {
        const int row = threadIdx.x / Tile::CHUNKS, chunk = threadIdx.x % Tile::CHUNKS;
        const int first_row = Tile::ALONG_K ? side : k_first, first = Tile::ALONG_K ? k_first : side;
        from = matrix + (long long)(first_row + row) * leading + first + chunk * CHUNK;
        step = (long long)PASS_ROWS * leading;
        rewind = Tile::ALONG_K ? Tile::K - (PASSES - 1) * step : step;
        left = side_end - side - (Tile::ALONG_K ? row : chunk * CHUNK);
        k = Tile::ALONG_K ? chunk * CHUNK : row;
        to = tile + swizzled<Tile::ROW_BYTES>(row, chunk);
    }

    // Goes back by `distance` of k.
    __device__ __forceinline__ void back(int distance, int leading) {
        from -= Tile::ALONG_K ? distance : (long long)distance * leading;
    }

    // A tile of which `k_left` of k are inside.
    __device__ __forceinline__ void copy_short(int k_left, unsigned stage) {
#pragma unroll
        for (int pass = 0; pass < PASSES; ++pass) {
            const int row = pass * PASS_ROWS;
            const bool inside = Tile::ALONG_K ? row < left : k + row < k_left;
            const int count = inside ? min(max(Tile::ALONG_K ? k_left - k : left, 0), CHUNK) : 0;
            copy_chunk<ALIGNED>(to + stage + row * Tile::ROW_BYTES, from, count);
            advance(pass);
        }
    }

    // Pass `pass` of a tile of which every k is inside.
    __device__ __forceinline__ void start(int pass, unsigned stage) {
        const int row = pass * PASS_ROWS;
        const bool inside = Tile::ALONG_K ? row < left : 0 < left;
        if constexpr (ALIGNED)
            cp_async_16_if(inside, to + stage + row * Tile::ROW_BYTES, from);
        else
            copy_chunk<false>(to + stage + row * Tile::ROW_BYTES, from,
                              Tile::ALONG_K ? (inside ? CHUNK : 0) : min(max(left, 0), CHUNK));
        advance(pass);
    }

    __device__ __forceinline__ void advance(int pass) { from += pass + 1 < PASSES ? step : rewind; }

    // Nothing more is read; what is still started copies zeros.
    __device__ __forceinline__ void end() { left = 0; }
};

// Fragments of 16 of m or n by 32 bytes of k, by ldmatrix of four matrices 8 x 16 bytes. In mma.cuh's order, lanes
// 8 i .. 8 i + 7 name the rows of A's matrices top left, bottom left, top right, bottom right; B's, two fragments of 8
// columns, in the order left, right of one and of the other.
template <class Tile>
__device__ __forceinline__ unsigned lane_row(int side, int side_half, int k_half) {
    const int line = threadIdx.x % 8;
    return Tile::ALONG_K ? swizzled<Tile::ROW_BYTES>(side + 8 * side_half + line, k_half)
                         : swizzled<Tile::ROW_BYTES>(8 * k_half + line, side / 8 + side_half);
}

template <class Tile>
__device__ __forceinline__ unsigned lane_row_of_a(int m) {
    return lane_row<Tile>(m, threadIdx.x / 8 % 2, threadIdx.x / 16 % 2);
}

template <class Tile>
__device__ __forceinline__ unsigned lane_row_of_b(int n) {
    return lane_row<Tile>(n, threadIdx.x / 16 % 2, threadIdx.x / 8 % 2);
}

// Fragment `piece` along m or n of k-step `step`. Along rows the address grows; along a row chunks change places, 32
// bytes a fragment, by XOR with what swizzled them: `lane` is a multiple of 256 plus the lane's own place.
template <class Tile>
__device__ __forceinline__ void load_fragment(unsigned (&fragment)[4], unsigned lane, int piece, int step) {
    if constexpr (Tile::ALONG_K)
        ldmatrix_x4(fragment, (lane ^ 2 * CHUNK_BYTES * step) + 16 * Tile::ROW_BYTES * piece);
    else
        ldmatrix_x4_trans(fragment, (lane ^ 2 * CHUNK_BYTES * piece) + 16 * Tile::ROW_BYTES * step);
}
