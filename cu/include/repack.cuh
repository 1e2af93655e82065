// repack: an operand's rows, wherever they begin, into rows that begin at multiples of 16 bytes, which TMA can take.
//
// Launched before the kernel that multiplies, for the operands that need it (lowlevel/catalog/repack.py). A thread
// writes 16 bytes of a row, and reads them element by element: neighbours' reads meet in L1.
#pragma once

#include "element.cuh"

constexpr int REPACK_THREADS = 256;

// `from` has `rows` of `columns` elements, `ld_from` apart; `to` has them `ld_to` apart, whole chunks of 16 bytes, with
// zeros behind the last column.
extern "C" __global__ void __launch_bounds__(REPACK_THREADS)
repack(const Operand* __restrict__ from, Operand* __restrict__ to, int rows, int columns, int ld_from, int ld_to) {
    constexpr int CHUNK = 16 / sizeof(Operand);
    const int chunks = ld_to / CHUNK;  // of a row
    const long long index = (long long)blockIdx.x * REPACK_THREADS + threadIdx.x;
    const int row = (int)(index / chunks), column = (int)(index - (long long)row * chunks) * CHUNK;
    if (row >= rows) return;

    union {
        Operand element[CHUNK];
        uint4 words;
    } chunk;
    const Operand* source = from + (long long)row * ld_from + column;
#pragma unroll
    for (int e = 0; e < CHUNK; ++e) chunk.element[e] = column + e < columns ? source[e] : Operand(0);
    *reinterpret_cast<uint4*>(to + (long long)row * ld_to + column) = chunk.words;
}
