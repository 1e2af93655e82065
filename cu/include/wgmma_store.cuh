// A warpgroup's sums, 64 x N as wgmma leaves them, finished and stored from where they are.
#pragma once

#include "pairs.cuh"

// The first is C[m][n]. A lane has two columns of every 8, in two rows: 8 rows of 16 bytes a warp and store.
template <int COUNT>
__device__ __forceinline__ void store_sums(const float (&d)[COUNT], Output* C, int ldc, int m, int n, int M, int N,
                                           const Epilogue& epilogue) {
    const int lane = threadIdx.x % 32, row = m + threadIdx.x % 128 / 32 * 16 + lane / 4, column = n + lane % 4 * 2;
    const bool wide = aligned_to_4(C, ldc);
    if (wide && m + 64 <= M && n + 2 * COUNT <= N) {  // all of it inside: no test, and no branch, between two stores
        Output* to = C + (long long)row * ldc + column;
        Output* below = to + 8 * (long long)ldc;
#pragma unroll
        for (int j = 0; j < COUNT / 4; ++j) {
            const auto at = [&](int i) { return epilogue(d[4 * j + i], row + i / 2 * 8, column + 8 * j + i % 2); };
            *reinterpret_cast<unsigned*>(to + 8 * j) = pack_output(at(0), at(1));
            *reinterpret_cast<unsigned*>(below + 8 * j) = pack_output(at(2), at(3));
        }
        return;
    }
#pragma unroll
    for (int j = 0; j < COUNT / 4; ++j) {
        store_pair(C, ldc, row, column + 8 * j, M, N, wide, d[4 * j], d[4 * j + 1], epilogue);
        store_pair(C, ldc, row + 8, column + 8 * j, M, N, wide, d[4 * j + 2], d[4 * j + 3], epilogue);
    }
}
