// The sums of the KGROUPS groups of split_loop.cuh, joined through shared memory: each warp ends with a part of them.
//
// Idea      The KGROUPS warps of one place in the tile meet, and no others. Each keeps its own part of its WM x WN in
//           registers, writes the others down for their groups, and adds to its own what it finds there: one barrier.
//           A warp of group g adds those of groups g ^ 1, g ^ 2 ... in this order, so that the bits are the same in
//           every run.
// Shared    [warp][part but its own][piece][lane] fours, of 16 bytes: a warp reads and writes 512 in a row. They lie in
//           the ring. Who comes out of the loop knows that all are done with every k-block but the last; so from the
//           stage behind the last k-block's on, and round the ring's end, nobody has to be waited for.
#pragma once

#include "named_barrier.cuh"
#include "split_loop.cuh"

constexpr int PART_ROWS = PART_M / MMA_M, PART_COLUMNS = PART_N / MMA_N;  // pieces of a part
constexpr int PART_FOURS = PART_ROWS * PART_COLUMNS * 32, STAGE_FOURS = STAGE_BYTES / 16;
static_assert(KGROUPS == 1 || WARPS * (KGROUPS - 1) * PART_FOURS <= (STAGES - 1) * STAGE_FOURS,
              "stages for the sums");
static_assert(KGROUPS == 1 || STAGE_FOURS % PART_FOURS == 0, "no part goes round the ring's end");
static_assert(KGROUPS == 1 || GROUP_WARPS < 16, "a barrier for each place in the tile");

// Where this lane's fours lie of part `part` of `warp`. `unread`: bytes from the ring's begin to those that are free.
__device__ __forceinline__ float4* fours_of_part(float4* ring, unsigned unread, int warp, int part) {
    const int four = unread / 16 + (warp * (KGROUPS - 1) + part - 1) * PART_FOURS;
    return ring + (four < STAGES * STAGE_FOURS ? four : four - STAGES * STAGE_FOURS) + threadIdx.x % 32;
}

__device__ __forceinline__ void add_to(Sums& sums, float4 other) {
    sums.element[0] += other.x;
    sums.element[1] += other.y;
    sums.element[2] += other.z;
    sums.element[3] += other.w;
}

// Joins this warp's sums with those of the other groups. Its own part is then whole, the first in `sums`.
__device__ __forceinline__ void join_groups(WarpSums& sums, float4* ring, unsigned unread) {
#pragma unroll
    for (int part = 1; part < KGROUPS; ++part) {
        float4* to = fours_of_part(ring, unread, threadIdx.x / 32, part);
#pragma unroll
        for (int i = 0; i < PART_ROWS; ++i)
#pragma unroll
            for (int j = 0; j < PART_COLUMNS; ++j)
                to[(i * PART_COLUMNS + j) * 32] = as_float4(
                    sums.piece[part / PARTS_N * PART_ROWS + i][part % PARTS_N * PART_COLUMNS + j]);
    }
    named_barrier_sync(1 + warp_in_group(), 32 * KGROUPS);  // all their sums are there
#pragma unroll
    for (int part = 1; part < KGROUPS; ++part) {
        const int warp = (group_of_warp() ^ part) * GROUP_WARPS + warp_in_group();  // its part `part` is this one's
        const float4* from = fours_of_part(ring, unread, warp, part);
#pragma unroll
        for (int i = 0; i < PART_ROWS; ++i)
#pragma unroll
            for (int j = 0; j < PART_COLUMNS; ++j) add_to(sums.piece[i][j], from[(i * PART_COLUMNS + j) * 32]);
    }
}
