// The sums of all slices of K, added up by whoever is there; nobody must wait, and no launch promises anything.
//
// Idea      Warps of one place in the tile, one of every slice, meet. Each writes its sums to the workspace, counts
//           itself in, and looks whether the others have come. If so, all add up a share each: of the sums of all
//           slices, in their order, so that the bits are the same in every run. Behind the loop, a chain of latencies:
//           store, see the count, load, store.
// No fence  between a warp's sums and its count, which would wait until L2 has all of them, as long as the loads after
//           it. So who sees the count may find sums that are not there yet: a word says itself that it has come, by not
//           being zero. A sum of +0 is written as -0, which adds up to the same. Whoever has read a word clears it for
//           the next call; each warp its own of another half of the workspace, while it waits, was slower on an H200.
//           The count only says when it is worth while to look: without it each warp would ask for 4 KiB at a time
//           where it asks for a word, while others still load and store, and that was slower by far.
// Leaving   The others may not even run. So a warp looks LOOKS times, and then leaves its share to the last to go. Each
//           has stored its sums before it counts itself in and goes: so the last waits for what is on its way, and for
//           nobody who has yet to run. The counts and what has been left are one word, so that one of any two knows of
//           the other.
//
// Memory    workspace: for each warp of each tile a line of 128 bytes with its Count; then the sums,
//           [tile][warp][slice][piece][lane] fours. All zero before and after. LOOKS = 0: the sums are whatever they
//           are before.
// Sums      A piece is 16 x 8 of the tile, as a warp holds it after mma or wgmma: four sums a lane. A warp has PART_M x
//           PART_N.
#pragma once

#include "split_tile.cuh"

constexpr int PIECE_M = 16, PIECE_N = 8;
constexpr int ROW_PIECES = PART_N / PIECE_N, PIECES = PART_M / PIECE_M * ROW_PIECES;  // of a warp
constexpr int FOURS = PIECES * 32;                                                   // fours of sums of a warp

// A warp's sums are added up in chunks of LANES fours, by GROUPS groups of lanes that have every GROUPS-th slice each.
// Share s is chunks s, s + SPLITS ... As small as there are shares, or so large that few lanes have to join.
__host__ __device__ constexpr int lanes_of_chunk() {
    int lanes = LOOKS == 0 && SPLITS > 32 ? 16 : 32;
    while (LOOKS > 0 && lanes / 2 * SPLITS >= FOURS) lanes /= 2;
    return lanes;
}
constexpr int LANES = lanes_of_chunk(), GROUPS = 32 / LANES, CHUNKS = FOURS / LANES;
constexpr int EACH = (SPLITS + GROUPS - 1) / GROUPS;        // slices of a group
constexpr int OF_A_SHARE = (CHUNKS + SPLITS - 1) / SPLITS;  // chunks at most; one, where shares are as many

// Bit s: share s has been left. Above them, how many have come, and how many have gone.
typedef unsigned long long Count;
constexpr int SHARE_BITS = 40;
constexpr Count COME = 1ull << SHARE_BITS, GONE = COME << 12;
static_assert(LOOKS == 0 || SPLITS <= SHARE_BITS, "a bit for each share");

__device__ __forceinline__ Count of_share(int share) { return 1ull << share; }
__device__ __forceinline__ bool all_have_come(Count word) { return word % GONE / COME == SPLITS; }
__device__ __forceinline__ bool all_others_have_gone(Count word) { return word / GONE == SPLITS - 1; }

// What a sum is written as.
__device__ __forceinline__ float not_zero(float sum) { return __float_as_uint(sum) == 0 ? -0.0f : sum; }

__device__ __forceinline__ float4 of_lane_xor(float4 a, int bits) {
    return make_float4(__shfl_xor_sync(~0u, a.x, bits), __shfl_xor_sync(~0u, a.y, bits),
                       __shfl_xor_sync(~0u, a.z, bits), __shfl_xor_sync(~0u, a.w, bits));
}

// A four that says itself that it has come. .relaxed: each word is whole and nothing else hangs on it, whatever order
// they come in. PTX ISA, 'Memory Consistency Model'.
__device__ __forceinline__ void tell(float4* to, float4 sum) {
    asm volatile("st.relaxed.gpu.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(not_zero(sum.x)),
                 "f"(not_zero(sum.y)), "f"(not_zero(sum.z)), "f"(not_zero(sum.w)) : "memory");
}
__device__ __forceinline__ float4 told(const float4* from) {
    float4 four;
    asm volatile("ld.relaxed.gpu.global.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(four.x), "=f"(four.y), "=f"(four.z), "=f"(four.w) : "l"(from) : "memory");
    return four;
}
__device__ __forceinline__ bool has_come(float4 a) {
    return min(min(__float_as_uint(a.x), __float_as_uint(a.y)), min(__float_as_uint(a.z), __float_as_uint(a.w))) != 0;
}

// A lane's part of a chunk: a four of every slice of its group.
struct Parts {
    float4 four[EACH];

    __device__ __forceinline__ static bool is_slice(int n) {  // n-th of the lane's group
        return n * GROUPS + GROUPS <= SPLITS || n * GROUPS + threadIdx.x % 32 / LANES < SPLITS;
    }

    // Where the n-th is from the lane's first. No branch between two loads: who has no n-th reads its first again.
    __device__ __forceinline__ static int offset(int n) { return is_slice(n) ? n * GROUPS * FOURS : 0; }

    // Reads them all, past L1, which may hold what lay there before.
    __device__ __forceinline__ void read(const float4* first) {
#pragma unroll
        for (int n = 0; n < EACH; ++n) four[n] = __ldcg(first + offset(n));
    }

    // The same until they have come. All have been stored.
    __device__ __forceinline__ void wait_and_read(const float4* first) {
        bool all;
        do {
#pragma unroll
            for (int n = 0; n < EACH; ++n) four[n] = told(first + offset(n));
            all = true;
#pragma unroll
            for (int n = 0; n < EACH; ++n) all &= has_come(four[n]);
        } while (!__all_sync(~0u, all));
    }

    // For the next call.
    __device__ __forceinline__ static void clear(float4* first) {
#pragma unroll
        for (int n = 0; n < EACH; ++n)
            if (is_slice(n)) __stcg(first + offset(n), make_float4(0.0f, 0.0f, 0.0f, 0.0f));
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

// Writes a lane's four sums of a piece of `slice`.
__device__ __forceinline__ void write_part(float4* parts, int slice, int piece, float4 sum) {
    float4* to = parts + slice * FOURS + piece * 32 + threadIdx.x % 32;
    if constexpr (LOOKS > 0)
        tell(to, sum);
    else
        *to = sum;
}

// Counts the warp in: its sums have been stored, and come soon. No answer is waited for: a warp's share is that of its
// slice.
__device__ __forceinline__ void come(Count* word) {
    __syncwarp();  // all lanes have stored before the first says so
    if (threadIdx.x % 32 == 0)
        asm volatile("red.relaxed.gpu.global.add.u64 [%0], %1;" ::"l"(word), "l"(COME) : "memory");
}

// Whether all come while the warp looks. Every lane asks, in one access, so that nobody has to be told.
__device__ __forceinline__ bool see_all(const Count* word) {
    bool all = false;
#pragma unroll 1
    for (int look = 0; look < LOOKS && !all; ++look) {
        Count now;
        asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(now) : "l"(word) : "memory");
        all = __all_sync(~0u, all_have_come(now));
    }
    return all;
}

// The warp goes: it does not touch the word any more, unless it is the last. Returns, in the first lane, what the word
// was before.
__device__ __forceinline__ Count go(Count* word, Count leaves) {
    Count before = 0;
    if (threadIdx.x % 32 == 0)
        asm volatile("atom.relaxed.gpu.global.add.u64 %0, [%1], %2;"
                     : "=l"(before) : "l"(word), "l"(GONE + leaves) : "memory");
    return before;
}

// The shares that have been left to the warp: if it is the last, which clears the word. `before`: of go().
__device__ __forceinline__ Count left_to_me(Count* word, Count before, Count leaves) {
    Count left = 0;
    if (threadIdx.x % 32 == 0 && all_others_have_gone(before)) {
        asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(word), "l"(0ull) : "memory");
        left = before % COME + leaves;
    }
    return __shfl_sync(~0u, left, 0);
}

// Adds up a share of all slices. `mine`: the lane's four of chunk 0, of its group's first slice.
__device__ __forceinline__ void add_up(int share, float4* mine, const TileOfC& to, const Epilogue& epilogue) {
    const int lane = threadIdx.x % 32;
#pragma unroll 1
    for (int n = 0; n < OF_A_SHARE; ++n) {
        const int chunk = share + n * SPLITS;
        if (chunk >= CHUNKS) return;
        const int four = chunk * LANES + lane % LANES, piece = four / 32;
        Parts parts;
        parts.wait_and_read(mine + chunk * LANES);
        const float4 sum = parts.sum();
        if (lane / LANES == 0)
            to.store(piece / ROW_PIECES * PIECE_M, piece % ROW_PIECES * PIECE_N, sum, epilogue, four % 32);
        Parts::clear(mine + chunk * LANES);
    }
}

// Adds up this warp's share, and if it is the last to go, what has been left. `to`: where the warp's part lies in C.
// All its sums have been written before.
__device__ __forceinline__ void add_up_together(Count* word, float4* parts, int slice, const TileOfC& to,
                                                const Epilogue& epilogue) {
    float4* mine = parts + threadIdx.x % 32 / LANES * FOURS + threadIdx.x % LANES;
    come(word);
    const bool together = see_all(word);
    const Count leaves = together ? 0 : of_share(slice);
    const Count before = go(word, leaves);  // the answer is on its way while the warp adds up
    if (together) add_up(slice, mine, to, epilogue);
#pragma unroll 1
    for (Count left = left_to_me(word, before, leaves); left != 0; left &= left - 1)
        add_up(__ffsll(left) - 1, mine, to, epilogue);
}
