// mbarriers: barriers in shared memory that count arrivals and bytes. sm_90 forms.
//
// A barrier has a phase that completes when its pending arrivals and its pending bytes are both zero; it then starts
// the next phase by itself. Waiters name the parity (0, 1, 0, ...) of the phase they wait for.
#pragma once

#include "shared.cuh"

// PTX ISA, 'mbarrier.init': each phase completes after `arrivals` arrivals.
__device__ __forceinline__ void mbarrier_init(unsigned barrier, unsigned arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// Makes initialised barriers visible to the copy engine. PTX ISA, 'fence.mbarrier_init'.
__device__ __forceinline__ void fence_mbarrier_init() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// One arrival. PTX ISA, 'mbarrier.arrive': what this thread did before is seen by whoever waits for the phase.
__device__ __forceinline__ void mbarrier_arrive(unsigned barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// The same at a barrier of any block of the cluster, `barrier` as map_to_rank gives it. The semantics are the default
// ones, .release.cta: enough for handing back memory that was read and will be written by the copy engine, and
// .release.cluster costs a MEMBAR.ALL.GPU each time. PTX ISA, 'mbarrier.arrive', .shared::cluster.
__device__ __forceinline__ void mbarrier_arrive_at(unsigned barrier) {
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// One arrival that also announces `bytes`, which the copy engine will deliver. PTX ISA, 'mbarrier.arrive.expect_tx'.
__device__ __forceinline__ void mbarrier_arrive_expect(unsigned barrier, unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

// Waits until the phase of this parity has completed. PTX ISA, 'mbarrier.try_wait': it may give up early, so ask again.
__device__ __forceinline__ void mbarrier_wait(unsigned barrier, unsigned parity) {
    asm volatile(
        "{\n\t"
        ".reg .pred done;\n\t"
        "again:\n\t"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n\t"
        "@!done bra again;\n\t"
        "}" ::"r"(barrier), "r"(parity) : "memory");
}
