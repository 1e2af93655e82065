// Prefetches into L2. They move no value, so that they are safe whoever writes there. sm_80.
#pragma once

__device__ __forceinline__ void prefetch_l2(const void* global) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(global));  // PTX ISA, 'prefetch'
}

// Rows of `bytes`, `leading` bytes apart: a prefetch each STEP bytes, dealt out to the threads of `blocks` blocks.
template <int STEP>
__device__ __forceinline__ void prefetch_rows(const char* from, long long leading, int rows, int bytes, int block,
                                              int blocks) {
    if (bytes <= 0) return;
    const unsigned steps = (bytes + STEP - 1) / STEP;
    for (unsigned i = block * blockDim.x + threadIdx.x; i < rows * steps; i += blocks * blockDim.x)
        prefetch_l2(from + i / steps * leading + i % steps * STEP);
}
