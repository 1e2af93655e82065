// wgmma's sums to C by the copy engine: a warp puts a piece of them into shared memory, and does not wait until it has
// arrived.
//
// A piece is 16 rows of 64 columns, a box of 2048 bytes: rows of 128 bytes whose chunks of 16 are swizzled, as map_C
// says. stmatrix stores 16 rows of 16 columns at a time, 8 rows of one chunk column together: swizzled, they lie in
// eight different groups of banks. A warp has two boxes and fills one while the other is read.
#pragma once

#include "epilogue.cuh"
#include "stmatrix.cuh"
#include "tma.cuh"

constexpr int BOX_ROWS = 16, BOX_COLUMNS = 64;
constexpr unsigned BOX_BYTES = BOX_ROWS * BOX_COLUMNS * sizeof(Output), BOXES_A_WARP = 2;

// A warp's boxes, which begin at a multiple of 1024 bytes, and the place of the one to fill next.
struct WarpBoxes {
    unsigned first, next = 0;
};

// Whether map_C describes C: the copy engine wants rows that begin at multiples of 16 bytes.
__device__ __forceinline__ bool tma_can_store(const Output* C, int ldc) {
    return (reinterpret_cast<unsigned long long>(C) | (unsigned)ldc * (unsigned)sizeof(Output)) % 16 == 0;
}

// A warpgroup's sums, the first of which is C[m][n]; each warp for itself.
template <int COUNT>
__device__ __forceinline__ void store_staged(const float (&d)[COUNT], WarpBoxes& boxes, const TensorMap* map_C,
                                             int m, int n, int M, int N, const Epilogue& epilogue) {
    constexpr int PIECE = BOX_COLUMNS / 2;  // sums of a lane
    static_assert(COUNT % PIECE == 0, "whole boxes");
    const int lane = threadIdx.x % 32;
    m += threadIdx.x % 128 / 32 * BOX_ROWS;
    // The row that this lane names to stmatrix, in the first 16 columns. Those after lie at chunks 2 j and 2 j + 1:
    // chunk c ^ r % 8 with another c, and boxes are aligned, so that the address takes the same XOR.
    const int box_row = lane % 16, chunk = lane / 16 ^ lane % 8;
    const unsigned place = box_row * 128 + chunk * 16;
#pragma unroll
    for (int piece = 0; piece < COUNT / PIECE; ++piece, boxes.next ^= BOX_BYTES) {
        const unsigned box = boxes.first + boxes.next;
        if (lane == 0) tma_store_wait_read<BOXES_A_WARP - 1>();  // the piece before the last has left this box
        __syncwarp();                                            // and the other lanes may know it
#pragma unroll
        for (int j = 0; j < BOX_COLUMNS / 16; ++j) {
            unsigned matrix[4];  // 8 x 8 each: rows 0 .. 7 and 8 .. 15 of 8 columns, then of the next 8
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int first = piece * PIECE + 8 * j + 2 * i;
                const int row = m + i % 2 * 8 + lane / 4;
                const int column = n + piece * BOX_COLUMNS + j * 16 + i / 2 * 8 + lane % 4 * 2;
                float value[2];
#pragma unroll
                for (int e = 0; e < 2; ++e)  // beyond the edge an epilogue reads what it does at the edge
                    value[e] = epilogue(d[first + e], min(row, M - 1), min(column + e, N - 1));
                matrix[i] = pack_output(value[0], value[1]);
            }
            stmatrix_x4((box + place) ^ 32 * j, matrix[0], matrix[1], matrix[2], matrix[3]);
        }
        fence_proxy_async();  // what this lane has written, before what the copy engine reads
        __syncwarp();         // and every lane's, before the one lane asks for it
        if (lane == 0) {
            tma_store_2d(map_C, box, n + piece * BOX_COLUMNS, m);  // rows and columns outside C are left out
            tma_store_commit();
        }
    }
}
