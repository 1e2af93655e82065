// Sums of wgmma to C, a warp on its own: 16 rows of some columns at a time, through a box of shared memory, by TMA.
//
// A lane packs its pairs, stmatrix lays them out in rows, and one lane hands the box to the copy engine while the warp
// goes on; two or more boxes a warp take turns. Boxes of 64 columns have rows of 128 bytes with TMA's 128-byte swizzle:
// chunk c of row r lies at c ^ r % 8, and the eight rows that stmatrix writes at once meet eight groups of banks. Wider
// boxes are not swizzled; rows of 288 bytes, 144 columns, collide two by two.
//
// TMA stores rows that begin at multiples of 16 bytes. Other rows the warp copies from the box itself.
#pragma once

#include "epilogue.cuh"
#include "shared.cuh"
#include "stmatrix.cuh"
#include "tma.cuh"

// A lane's pairs of 16 x COLUMNS, in the order in which stmatrix takes them.
template <int COLUMNS>
using Packed = unsigned[COLUMNS / 4];

// Columns `first` .. of a warp's 16 rows of `acc`, finished; C[m][n] is the first element of the warp's rows there.
// Beyond the edge nothing is read and nothing stored.
template <int COLUMNS, int SUMS>
__device__ __forceinline__ void pack_columns(Packed<COLUMNS>& packed, const float (&acc)[SUMS], int first, int m, int n,
                                             int M, int N, const Epilogue& epilogue) {
    const int lane = threadIdx.x % 32;
    int row = m + lane / 4, column = n + lane % 4 * 2;
    // Addresses of what is added begin here, one a row: ones made earlier, or one a column, would take the sums'
    // registers.
    asm volatile("" : "+r"(row), "+r"(column));
#pragma unroll
    for (int j = 0; j < COLUMNS / 8; ++j) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const float* pair = &acc[(first / 8 + j) * 4 + 2 * half];
            const auto finished = [&](int i) {
                const int at_m = row + 8 * half, at_n = column + 8 * j + i;
                return !Epilogue::ADDS || (at_m < M && at_n < N) ? epilogue(pair[i], at_m, at_n) : 0.0f;
            };
            packed[2 * j + half] = pack_output(finished(0), finished(1));
        }
    }
}

// A warp's BOXES boxes of 16 x COLUMNS. LEAVES: in L2 C makes room for other lines.
template <int COLUMNS, int BOXES, bool LEAVES>
struct BoxStore {
    static constexpr bool SWIZZLED = COLUMNS == 64;
    static constexpr unsigned ROW_BYTES = COLUMNS * sizeof(Output), BYTES = 16 * ROW_BYTES;
    static_assert(COLUMNS % 16 == 0 && COLUMNS <= 256, "whole stmatrix, and a box that TMA takes");

    const TensorMap* map;
    char* boxes;  // shared
    Output* C;
    int M, N, ldc;
    bool by_tma;  // else rows of C begin anywhere
    int next = 0;

    static __device__ __forceinline__ unsigned place(int row, int chunk) {
        return row * ROW_BYTES + (SWIZZLED ? chunk ^ row % 8 : chunk) * 16;
    }

    // The warp's rows m .. m + 15, columns n .. n + COLUMNS - 1.
    __device__ __forceinline__ void store(const Packed<COLUMNS>& packed, int m, int n) {
        const int lane = threadIdx.x % 32;
        char* box = boxes + next * BYTES;
        next = next + 1 == BOXES ? 0 : next + 1;
        if (lane == 0) tma_store_wait_read<BOXES - 1>();  // this box's last store has read it
        __syncwarp();
        const int row = lane % 16, side = lane / 16;  // lanes 0-7, 8-15 name rows of columns 0-7, the others of 8-15
#pragma unroll
        for (int i = 0; i < COLUMNS / 16; ++i)
            stmatrix_x4(shared_address(box) + place(row, 2 * i + side), packed[4 * i], packed[4 * i + 1],
                        packed[4 * i + 2], packed[4 * i + 3]);
        fence_proxy_async();  // the copy engine must see what stmatrix wrote
        __syncwarp();
        if (!by_tma) {
            copy(box, m, n);
        } else if (lane == 0) {
            if constexpr (LEAVES)
                tma_store_2d(map, shared_address(box), n, m, evict_first());
            else
                tma_store_2d(map, shared_address(box), n, m);
            tma_store_commit();
        }
    }

    // The box to C, element by element, as far as it is inside.
    __device__ __forceinline__ void copy(const char* box, int m, int n) {
        const int lane = threadIdx.x % 32;
#pragma unroll 1
        for (int row = 0; row < 16 && m + row < M; ++row) {
            Output* to = C + (long long)(m + row) * ldc + n;
#pragma unroll
            for (int column = lane; column < COLUMNS; column += 32) {
                const char* chunk = box + place(row, column / 8);
                if (n + column < N) to[column] = reinterpret_cast<const Output*>(chunk)[column % 8];
            }
        }
        __syncwarp();  // the box may be written again
    }

    // Before the warp ends: its shared memory is read until then.
    __device__ __forceinline__ void finish() {
        if (threadIdx.x % 32 == 0) tma_store_wait_read<0>();
    }
};
