// Eight neighbouring 16-bit operands of a row: 16 bytes, the most that one load moves.
#pragma once

#include "element.cuh"

static_assert(sizeof(Operand) == 2, "eight operands are 16 bytes");

// Whether every eighth element of every row starts at a multiple of 16 bytes.
__device__ __forceinline__ bool aligned_to_16(const Operand* matrix, int leading) {
    return reinterpret_cast<unsigned long long>(matrix) % 16 == 0 && leading % 8 == 0;
}

// A thread's share of a tile where all rows are aligned so, and K is a multiple of 8: elements k .. k + 7 of COUNT rows
// of a matrix of rows x K, APART rows from one to the next; zero outside.
template <int APART, int COUNT>
__device__ __forceinline__ void load_eights(uint4 (&eight)[COUNT], const Operand* matrix, int leading, int row,
                                            int rows, int k, int K) {
    const Operand* from = matrix + (long long)row * leading + k;
    const int end = k < K ? rows - row : 0;  // of the rows, seen from the first
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
        eight[i] = i * APART < end ? *reinterpret_cast<const uint4*>(from) : make_uint4(0, 0, 0, 0);
        from += (long long)APART * leading;
    }
}

// row[at] .. row[at + 7] element by element, zero from row[end] on.
__device__ __forceinline__ uint4 gather_eight(const Operand* row, int at, int end) {
    unsigned word[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const unsigned low = at + 2 * i < end ? row[at + 2 * i] : 0;
        const unsigned high = at + 2 * i + 1 < end ? row[at + 2 * i + 1] : 0;
        word[i] = low | high << 16;
    }
    return make_uint4(word[0], word[1], word[2], word[3]);
}

// The same share where rows are not aligned: one eight after another, each straight to `place(i)`.
template <int APART, int COUNT, class Place>
__device__ __forceinline__ void gather_eights(const Operand* matrix, int leading, int row, int rows, int k, int K,
                                              Place place) {
    const Operand* from = matrix + (long long)row * leading;
#pragma unroll 1
    for (int i = 0; i < COUNT; ++i) {
        *place(i) = gather_eight(from, k, row + i * APART < rows ? K : 0);
        from += (long long)APART * leading;
    }
}
