// The sums of a tile's slices in the fast family: the last warp to come adds them up.
//
// Idea      Warps that have the same rows of a tile, one of every slice, meet. Each writes its sums to the workspace
//           and counts itself in. Who finds that all others have come reads what all wrote, adds it up, a box of C at
//           a time, and stores C. Nobody waits: slices may be multiplied at any time and in any order. The sums are
//           added in the order of the slices, whoever is the last, so that the bits are the same in every run.
//           The last reads its own again, too: registers that it frees by forgetting them hold more reads at once.
//
// Memory    workspace: CLAIMS words for gpc_claim.cuh, then a count for each warp of each tile, all of them zero before
//           and after; from the next multiple of 256 bytes on the sums, [tile][warp][slice][piece][lane] fours,
//           whatever they are before.
// Sums      A piece is 16 x 8 of the tile, as a warp holds it after wgmma: four sums a lane.
#pragma once

#include "comes_last.cuh"
#include "fast_block.cuh"

constexpr int CLAIMS = 64, WARPS_OF_A_TILE = 4 * SHARERS;
constexpr int FOURS_OF_A_BLOCK = BN / 8 * 32, FOURS_OF_A_WARP = BLOCKS * FOURS_OF_A_BLOCK;  // of a warp's 16 rows

typedef float BoxSums[COLUMNS / 2];  // a lane's, of a box

// Slices that are read at once, a box of each: as many as registers hold.
__host__ __device__ constexpr int slices_at_once() {
    int slices = SPLITS;
    while (SPLITS % slices || slices * COLUMNS / 2 > 128) --slices;
    return slices;
}
constexpr int AT_ONCE = slices_at_once();

__device__ __forceinline__ void add(float* sums, float4 four) {
    sums[0] += four.x;
    sums[1] += four.y;
    sums[2] += four.z;
    sums[3] += four.w;
}

// Where a warp's sums of one item of work meet those of the other slices.
struct Meeting {
    unsigned* count;
    float4* parts;  // this lane's first of slice 0
    int slice;      // whose sums the warp has

    __device__ __forceinline__ Meeting(int* workspace, const Work& item) : slice(item.slice()) {
        const int rank = CLUSTER > 1 ? cluster_rank() : 0, warp = threadIdx.x / 32 % WARPS_OF_A_TILE;
        const int number = (item.tile() * CLUSTER + rank) * WARPS_OF_A_TILE + warp;
        const int counts = (item.tiles() * CLUSTER * WARPS_OF_A_TILE + 63) / 64 * 64;
        float4* sums = reinterpret_cast<float4*>(workspace + CLAIMS + counts);
        count = reinterpret_cast<unsigned*>(workspace + CLAIMS + number);
        parts = sums + (long long)number * SPLITS * FOURS_OF_A_WARP + threadIdx.x % 32;
    }

    __device__ __forceinline__ float4* part(int slice, int block, int piece) const {
        return parts + slice * FOURS_OF_A_WARP + block * FOURS_OF_A_BLOCK + piece * 32;
    }

    __device__ __forceinline__ void write(const Block (&acc)[BLOCKS]) const {
        float4* mine = part(slice, 0, 0);
#pragma unroll
        for (int block = 0; block < BLOCKS; ++block)
#pragma unroll
            for (int piece = 0; piece < BN / 8; ++piece) {
                const float* sums = &acc[block][4 * piece];
                mine[block * FOURS_OF_A_BLOCK + piece * 32] = make_float4(sums[0], sums[1], sums[2], sums[3]);
            }
    }

    // Whether all sums of the tile's warp are there: the last to write them has the rest to do.
    __device__ __forceinline__ bool come_last() const { return comes_last(count, SPLITS); }

    // The sums of all slices, of a box's columns. Read past L1, which may hold what lay there before.
    __device__ __forceinline__ void add_up(BoxSums& sums, int block, int box) const {
        const float4* first = part(0, block, box * COLUMNS / 8);
#pragma unroll
        for (int i = 0; i < COLUMNS / 2; ++i) sums[i] = 0.0f;
#pragma unroll 1  // what is not unrolled, the compiler cannot read ahead of until registers are spilled
        for (int slice = 0; slice < SPLITS; slice += AT_ONCE, first += AT_ONCE * FOURS_OF_A_WARP)
#pragma unroll
            for (int i = 0; i < AT_ONCE; ++i)
#pragma unroll
                for (int piece = 0; piece < COLUMNS / 8; ++piece)
                    add(&sums[4 * piece], __ldcg(first + i * FOURS_OF_A_WARP + piece * 32));
    }
};
