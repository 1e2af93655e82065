// Warps that meet where nobody waits: who comes last goes on with what all have written.
#pragma once

// Counts this warp in. Whether it is the last of `warps`; then the counter is zero again. .release: what the warp wrote
// before is visible to whoever sees the count. .acquire: and the reverse. PTX ISA, 'Memory Consistency Model'.
__device__ __forceinline__ bool comes_last(unsigned* counter, unsigned warps) {
    unsigned before = 0;
    __syncwarp();  // all lanes have written before the first says so
    if (threadIdx.x % 32 == 0)
        asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;"
                     : "=r"(before) : "l"(counter), "r"(warps - 1) : "memory");
    before = __shfl_sync(~0u, before, 0);
    __syncwarp();  // no lane reads before the first has seen them all
    return before == warps - 1;
}
