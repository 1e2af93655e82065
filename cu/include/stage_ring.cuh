// A ring of stages in shared memory between who fills them and who empties them, each stage with two mbarriers:
//
//   full     completes when the bytes of a k-block have landed
//   empty    completes when everyone who reads the stage has said that it is done
//
// A stage is used once a round. Its barriers complete one phase a round, so round r's phase has parity r % 2. Who reads
// waits for full's phase of this round: parity r % 2. Who fills waits until the reading of the round before is over:
// parity (r - 1) % 2, the other one. In round 0 that asks for the phase before a new barrier's first, which counts as
// complete (PTX ISA, 'mbarrier.try_wait'): nobody has to arrive in advance.
#pragma once

// Where one of them has got to: the stage to use next, and its round's parity.
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
