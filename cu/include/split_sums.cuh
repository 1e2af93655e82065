// The sums of all slices of K, added up by whoever is there; nobody must wait, and no launch promises anything.
//
// Idea      A warp writes its sums to the workspace, and each warp of the same place in the tile, one of every slice,
//           adds up a share of them. Nothing has to say that they are there, for they say so themselves: the workspace
//           is zero, a sum that is zero is written as -0, and so a word that is zero has not come. Who adds up asks for
//           all words of a chunk at once, until none is zero; finishes the sums; and writes zeros in their place. From
//           a store to its sum there is one way to L2 and back, and neither fence nor barrier. The order of the
//           additions is that of the slices, so that the bits are the same in every run.
// Leaving   The others may not even run. So a warp looks LOOKS times, and then leaves its share to the last to go,
//           which finds everything there. The others have written all that they have before they go: so the last never
//           waits. What has been left, and how many have gone, are one word, so that one of any two knows of the other.
//
// Memory    workspace: for each warp of each tile a line of 128 bytes with its Count, zero before and after; then the
//           sums, [tile][warp][slice][piece][lane] fours, zero before and after too.
// Sums      A piece is 16 x 8 of the tile, as a warp holds it after mma or wgmma: four sums a lane. A warp has WM x WN.
#pragma once

#include "split_tile.cuh"

constexpr int PIECE_M = 16, PIECE_N = 8;
constexpr int ROW_PIECES = WN / PIECE_N, PIECES = WM / PIECE_M * ROW_PIECES;  // of a warp
constexpr int FOURS = PIECES * 32;                                           // fours of sums of a warp

// A warp's sums are added up in chunks of LANES fours, by GROUPS groups of lanes that have every GROUPS-th slice each.
// Share s is chunks s, s + SPLITS ... As small as there are shares, or so large that few lanes have to join.
__host__ __device__ constexpr int lanes_of_chunk() {
    int lanes = LOOKS == 0 && SPLITS > 32 ? 16 : 32;
    while (LOOKS > 0 && lanes / 2 * SPLITS >= FOURS) lanes /= 2;
    return lanes;
}
constexpr int LANES = lanes_of_chunk(), GROUPS = 32 / LANES, CHUNKS = FOURS / LANES;
constexpr int EACH = (SPLITS + GROUPS - 1) / GROUPS;  // slices of a group

// Bit s: share s has been left. Above them, how many have gone. Slice 0 takes away, when it goes, what the others add,
// so that the word is zero in the end; until then it is below zero, whatever has been left, and whoever reads it adds
// that again.
typedef unsigned long long Count;
constexpr int SHARE_BITS = 40;
constexpr Count GONE = 1ull << SHARE_BITS;
static_assert(LOOKS == 0 || SPLITS <= SHARE_BITS, "a bit for each share");

__device__ __forceinline__ Count going(int slice) { return slice == 0 ? GONE - SPLITS * GONE : GONE; }
__device__ __forceinline__ Count as_counted(Count word) { return (long long)word < 0 ? word + SPLITS * GONE : word; }
__device__ __forceinline__ bool all_others_gone(Count word) { return as_counted(word) / GONE == SPLITS - 1; }

// .relaxed: a word is written or it is not; it says nothing of others. PTX ISA, 'Memory Consistency Model'.
__device__ __forceinline__ void store_four(float4* to, float4 four) {
    asm volatile("st.relaxed.gpu.global.v4.f32 [%0], {%1, %2, %3, %4};"
                 ::"l"(to), "f"(four.x), "f"(four.y), "f"(four.z), "f"(four.w) : "memory");
}

__device__ __forceinline__ bool has_come(const float4& four) {
    return __float_as_uint(four.x) != 0 & __float_as_uint(four.y) != 0 & __float_as_uint(four.z) != 0 &
           __float_as_uint(four.w) != 0;
}

__device__ __forceinline__ float4 load_four(const float4* from) {
    float4 four;
    asm volatile("ld.relaxed.gpu.global.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(four.x), "=f"(four.y), "=f"(four.z), "=f"(four.w) : "l"(from) : "memory");
    return four;
}

__device__ __forceinline__ float4 of_lane_xor(float4 a, int bits) {
    return make_float4(__shfl_xor_sync(~0u, a.x, bits), __shfl_xor_sync(~0u, a.y, bits),
                       __shfl_xor_sync(~0u, a.z, bits), __shfl_xor_sync(~0u, a.w, bits));
}

// A lane's part of a chunk: a four of every slice of its group.
struct Parts {
    float4 four[EACH];

    __device__ __forceinline__ static bool is_slice(int n) {  // n-th of the lane's group
        return n * GROUPS + GROUPS <= SPLITS || n * GROUPS + threadIdx.x % 32 / LANES < SPLITS;
    }

    // Reads them all; false where one has not come. `from`: the lane's four of its group's first slice.
    __device__ __forceinline__ bool look(const float4* from) {
        bool all = true;
#pragma unroll
        for (int n = 0; n < EACH; ++n)  // no branch between two loads: who has no n-th slice reads its first again
            four[n] = load_four(from + (is_slice(n) ? n * GROUPS * FOURS : 0));
#pragma unroll
        for (int n = 0; n < EACH; ++n) all = all & has_come(four[n]);
        return __all_sync(~0u, all);
    }

    // Leaves the workspace as it was.
    __device__ __forceinline__ static void clear(float4* from) {
#pragma unroll
        for (int n = 0; n < EACH; ++n)
            if (is_slice(n)) store_four(from + n * GROUPS * FOURS, make_float4(0.0f, 0.0f, 0.0f, 0.0f));
    }

    // Each group its slices in their order, then the groups in theirs; the first group's lanes have the sum.
    __device__ __forceinline__ float4 sum() const {
        float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
        for (int n = 0; n < EACH; ++n) sum = add(sum, is_slice(n) ? four[n] : make_float4(0.0f, 0.0f, 0.0f, 0.0f));
#pragma unroll
        for (int bits = LANES; bits < 32; bits *= 2) sum = add(sum, of_lane_xor(sum, bits));
        return sum;
    }
};

// Where a warp's sums lie in the workspace, behind the counts of `warps`, as many as all tiles have.
__device__ __forceinline__ float4* parts_of_warp(Count* workspace, int warp, int warps) {
    return reinterpret_cast<float4*>(workspace + warps * 16ll) + (long long)warp * SPLITS * FOURS;
}

__device__ __forceinline__ float other_than_zero(float sum) { return sum == 0.0f ? -0.0f : sum; }

// Writes a lane's four sums of a piece of `slice`.
__device__ __forceinline__ void write_part(float4* parts, int slice, int piece, float4 sum) {
    store_four(parts + slice * FOURS + piece * 32 + threadIdx.x % 32,
               make_float4(other_than_zero(sum.x), other_than_zero(sum.y), other_than_zero(sum.z),
                           other_than_zero(sum.w)));
}

// Leaves the warp's share to the last to go, unless this is the last.
__device__ __forceinline__ bool leave(Count* word, int slice) {
    bool left = false;
    if (threadIdx.x % 32 == 0) {
        Count now;
        asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(now) : "l"(word) : "memory");
        while (!left && !all_others_gone(now)) {
            const Count expected = now;
            asm volatile("atom.relaxed.gpu.global.cas.b64 %0, [%1], %2, %3;"
                         : "=l"(now)
                         : "l"(word), "l"(expected), "l"(expected + going(slice) + (1ull << slice)) : "memory");
            left = now == expected;
        }
    }
    return __shfl_sync(~0u, (int)left, 0);
}

// The warp goes. What has been left to it, if it is the last.
__device__ __forceinline__ Count go(Count* word, int slice) {
    Count left = 0;
    if (threadIdx.x % 32 == 0) {
        Count before;
        asm volatile("atom.relaxed.gpu.global.add.u64 %0, [%1], %2;"
                     : "=l"(before) : "l"(word), "l"(going(slice)) : "memory");
        if (all_others_gone(before)) left = as_counted(before) % GONE;
        if (left != 0)
            asm volatile("red.relaxed.gpu.global.add.u64 [%0], %1;" ::"l"(word), "l"(0 - left) : "memory");
    }
    return __shfl_sync(~0u, left, 0);
}

// Adds up this warp's share, and if it is the last to go, what has been left. `to`: where the warp's WM x WN lie in C.
// All its sums have been written before.
__device__ __forceinline__ void add_up_together(Count* word, float4* parts, int slice, const TileOfC& to,
                                                const Epilogue& epilogue) {
    const int lane = threadIdx.x % 32, group = lane / LANES;
    float4* mine = parts + group * FOURS + lane % LANES;
    unsigned looks = LOOKS;
    Count left = 0;
    bool gone = false;
#pragma unroll 1
    for (int share = slice;;) {
#pragma unroll 1
        for (int chunk = share; chunk < CHUNKS; chunk += SPLITS) {
            Parts found;
#pragma unroll 1
            while (!found.look(mine + chunk * LANES))
                if (looks > 0 && --looks == 0 && leave(word, slice)) return;
            looks = 0;  // from here on for as long as it takes: they have all begun to write
            const float4 sum = found.sum();
            const int four = chunk * LANES + lane % LANES, piece = four / 32;
            if (group == 0)
                to.store(piece / ROW_PIECES * PIECE_M, piece % ROW_PIECES * PIECE_N, sum, epilogue, four % 32);
            Parts::clear(mine + chunk * LANES);
        }
        if (!gone) left = go(word, slice);
        gone = true;
        if (left == 0) return;
        share = __ffsll(left) - 1;
        left &= left - 1;
        looks = 0;
    }
}
