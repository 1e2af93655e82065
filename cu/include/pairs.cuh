// Two neighbouring sums of a row, finished and stored as 4 bytes where that is possible, else one by one.
#pragma once

#include "epilogue.cuh"

// Whether every second element of every row of C starts at a multiple of 4 bytes.
__device__ __forceinline__ bool aligned_to_4(const Output* C, int ldc) {
    return reinterpret_cast<unsigned long long>(C) % 4 == 0 && ldc % 2 == 0;
}

// C[m][n] and C[m][n + 1], as far as they are inside; n is even. `wide`: aligned_to_4.
__device__ __forceinline__ void store_pair(Output* C, int ldc, int m, int n, int M, int N, bool wide, float low,
                                           float high, const Epilogue& epilogue) {
    if (m >= M || n >= N) return;
    Output* to = C + (long long)m * ldc + n;
    const float first = epilogue(low, m, n);
    if (n + 1 == N) {
        *to = to_output(first);
        return;
    }
    const float second = epilogue(high, m, n + 1);
    if (wide) {
        *reinterpret_cast<unsigned*>(to) = pack_output(first, second);
    } else {
        to[0] = to_output(first);
        to[1] = to_output(second);
    }
}
