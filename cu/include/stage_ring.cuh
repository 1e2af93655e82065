// A ring of stages in shared memory, which copies fill and warps empty, and where one of them has got to in it.
#pragma once

// The stage, and the parity of its phase: of `full` for who reads, and its opposite of `empty` for who fills.
template <int COUNT>
struct RingPosition {
    unsigned stage = 0, parity = 0;

    __device__ __forceinline__ void advance() {
        if (++stage == COUNT) {
            stage = 0;
            parity ^= 1;
        }
    }

    __device__ __forceinline__ unsigned before() const { return stage == 0 ? COUNT - 1 : stage - 1; }

    // `blocks` stages further: those that somebody else reads.
    __device__ __forceinline__ void skip(int blocks) {
        const unsigned sum = stage + blocks;
        stage = sum % COUNT;
        parity ^= sum / COUNT & 1;
    }
};
