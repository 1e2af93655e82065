// An epilogue as a kernel of its own: C = epilogue(C) in place, after a product that was stored without it.
//
// A warp takes 128 columns of a row: lane i the four from 4 i on, as 16 bytes, where rows start at multiples of 16
// bytes. Elsewhere it takes columns i, i + 32, i + 64 and i + 96, so that each access of the warp is still one piece
// of memory. Blocks are 32 x 8 threads; rows go round where the grid has too few blocks for them.

#include "epilogue.cuh"
#include "fours.cuh"

extern "C" __global__ void __launch_bounds__(256) finish(float* C, int M, int N, int ldc, Epilogue epilogue) {
    const bool wide = aligned_to_16(C, ldc);
    const int tile = blockIdx.x * 128, lane = threadIdx.x;
    const long long step = (long long)gridDim.y * blockDim.y;
    for (long long m = (long long)blockIdx.y * blockDim.y + threadIdx.y; m < M; m += step) {
        float* row = C + m * ldc;
        const int four = tile + 4 * lane;
        if (wide && tile + 128 <= N) {
            float4 c = load_four(row, four, N, true);
            c.x = epilogue(c.x, m, four);
            c.y = epilogue(c.y, m, four + 1);
            c.z = epilogue(c.z, m, four + 2);
            c.w = epilogue(c.w, m, four + 3);
            store_four(row, four, N, true, c);
            continue;
        }
        for (int n = tile + lane; n < N && n < tile + 128; n += 32) row[n] = epilogue(row[n], m, n);
    }
}
