// Named barriers: a block has sixteen, for some of its warps each. Number 0 is __syncthreads().
#pragma once

// `threads`, a multiple of 32, meet at barrier `id`, 1 to 15. PTX ISA, 'bar'.
__device__ __forceinline__ void named_barrier_sync(int id, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// Counts among the `threads` of barrier `id` and goes on: for whoever has something to say and nothing to wait for.
// PTX ISA, 'bar'.
__device__ __forceinline__ void named_barrier_arrive(int id, int threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
