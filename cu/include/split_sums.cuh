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
//           The count only says when it is worth while to read. Sums that are read before they are there are read
//           twice, and that was slower by far on an H200: so was every way to read or to count earlier than here. When
//           no more than FEW have yet to come, a warp reads what there is, and then asks again for the rest.
// Looking   is an atomic that adds nothing, by one lane. Loads of the word were slower on an H200: it may be that L2
//           keeps a copy of what is loaded in the half where the asking SM is, which the next count has to remove,
//           while atomics are done where the word lies.
// Leaving   The others may not even run. So a warp looks LOOKS times, and then leaves its share to the last to come,
//           who finds in the count's word what has been left; if they have all come by then, the word's answer says so,
//           and the warp takes its share back. Each has stored its sums before it counts itself in: so the last, too,
//           waits for what is on its way, and for nobody who has yet to run.
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
constexpr int EACH = (SPLITS + GROUPS - 1) / GROUPS;  // slices of a group

// Bit s: share s has been left. Above them, in six bits, how many have come. Slice 0 counts as many as the others do
// not of 2^6: all together leave nothing behind, and nobody has to clear the word for the next call.
typedef unsigned long long Count;
constexpr int COUNT_AT = 58;
constexpr int FEW = SPLITS / 2;  // no more may have yet to come when a warp reads
static_assert(LOOKS == 0 || SPLITS <= COUNT_AT, "a bit for each share, and fewer than six bits count");

__device__ __forceinline__ Count of_share(int share) { return 1ull << share; }
__device__ __forceinline__ Count of_slice(int slice) { return (Count)(slice == 0 ? 65 - SPLITS : 1) << COUNT_AT; }

// How many have yet to come. While slice 0 is among them, more than there are.
__device__ __forceinline__ int to_come(Count word) { return (64 - (int)(word >> COUNT_AT)) % 64; }
__device__ __forceinline__ Count left_in(Count word) { return word % (1ull << COUNT_AT); }

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
__device__ __forceinline__ bool has_come(float4 a) {
    return min(min(__float_as_uint(a.x), __float_as_uint(a.y)), min(__float_as_uint(a.z), __float_as_uint(a.w))) != 0;
}
// Reads it if it has not come; no branch between one and the next.
__device__ __forceinline__ void ask(float4& four, const float4* from) {
    asm volatile("{\n\t.reg .pred missing;\n\tsetp.eq.u32 missing, %5, 0;\n\t"
                 "@missing ld.relaxed.gpu.global.v4.f32 {%0, %1, %2, %3}, [%4];\n\t}"
                 : "+f"(four.x), "+f"(four.y), "+f"(four.z), "+f"(four.w)
                 : "l"(from), "r"((unsigned)has_come(four)) : "memory");
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

    // Reads those that had not come, zero at first. Whether all the warp's have.
    __device__ __forceinline__ bool read_rest(const float4* first) {
#pragma unroll
        for (int n = 0; n < EACH; ++n) ask(four[n], first + offset(n));
        bool all = true;
#pragma unroll
        for (int n = 0; n < EACH; ++n) all &= has_come(four[n]);
        return __all_sync(~0u, all);
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

// Adds to the word. Returns to every lane what it was before.
__device__ __forceinline__ Count add_to_word(Count* word, Count more) {
    Count before = 0;
    if (threadIdx.x % 32 == 0)
        asm volatile("atom.relaxed.gpu.global.add.u64 %0, [%1], %2;" : "=l"(before) : "l"(word), "l"(more) : "memory");
    return __shfl_sync(~0u, before, 0);
}

// What has been left is this warp's to add up now.
__device__ __forceinline__ void take(Count* word, Count shares) {
    if (threadIdx.x % 32 == 0 && shares != 0)
        asm volatile("red.relaxed.gpu.global.add.u64 [%0], %1;" ::"l"(word), "l"(-shares) : "memory");
}

// Whether the first chunk of a share comes while the warp looks. `now`: the word with this warp's count.
__device__ __forceinline__ bool see_all(Count* word, Count now, Parts& parts, const float4* first) {
#pragma unroll 1
    for (int look = 0; look < LOOKS; ++look) {
        if (to_come(now) > FEW)
            now = add_to_word(word, 0);
        else if (parts.read_rest(first))
            return true;
    }
    return false;
}

// Adds up a chunk that has been read, and clears it. `chunk`: the lane's four of it, of its group's first slice.
__device__ __forceinline__ void finish(const Parts& parts, int chunk, float4* mine, const TileOfC& to,
                                       const Epilogue& epilogue) {
    const int lane = threadIdx.x % 32, four = chunk * LANES + lane % LANES, piece = four / 32;
    Parts::clear(mine + chunk * LANES);
    const float4 sum = parts.sum();
    if (lane / LANES == 0)
        to.store(piece / ROW_PIECES * PIECE_M, piece % ROW_PIECES * PIECE_N, sum, epilogue, four % 32);
}

// Adds up a share of all slices, which have all come, from `chunk` on.
__device__ __forceinline__ void add_up(int chunk, float4* mine, const TileOfC& to, const Epilogue& epilogue) {
#pragma unroll 1
    for (; chunk < CHUNKS; chunk += SPLITS) {
        Parts parts = {};
        while (!parts.read_rest(mine + chunk * LANES)) {}
        finish(parts, chunk, mine, to, epilogue);
    }
}

// Counts the warp in, whose sums have been written. Adds up its share, and if it is the last to come, what has been
// left. `to`: where the warp's part lies in C.
__device__ __forceinline__ void add_up_together(Count* word, float4* parts, int slice, const TileOfC& to,
                                                const Epilogue& epilogue) {
    float4* mine = parts + threadIdx.x % 32 / LANES * FOURS + threadIdx.x % LANES;
    __syncwarp();  // all lanes have stored before the first says so
    const Count now = add_to_word(word, of_slice(slice)) + of_slice(slice);
    int chunk = slice;
    if (chunk < CHUNKS) {
        Parts first = {};
        if (see_all(word, now, first, mine + chunk * LANES)) {
            finish(first, chunk, mine, to, epilogue);
            chunk += SPLITS;
        } else {
            if (to_come(add_to_word(word, of_share(slice))) > 0) return;
            take(word, of_share(slice));
        }
    }
    add_up(chunk, mine, to, epilogue);
    if (to_come(now) > 0) return;
    Count left = left_in(now);
    take(word, left);
#pragma unroll 1
    for (; left != 0; left &= left - 1) add_up(__ffsll(left) - 1, mine, to, epilogue);
}
