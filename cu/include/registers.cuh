// setmaxnreg: warpgroups of a block hand registers to each other. sm_90a.
//
// A kernel starts with the same number for every thread; those that need few give the rest back, and those that need
// many wait until there are enough. All warps of a warpgroup execute the same one. The compiler must know the number at
// the start: __launch_bounds__(threads, 1), always with the 1, or it drops the instruction (advisory C7508). What the
// takers take may not exceed what the block started with, less what is kept, or they wait for ever.
#pragma once

// From here on this warpgroup has `COUNT` registers a thread, fewer than before. PTX ISA, 'setmaxnreg'.
template <int COUNT>
__device__ __forceinline__ void give_registers() {
    static_assert(COUNT % 8 == 0 && 24 <= COUNT && COUNT <= 256, "a multiple of 8 from 24 to 256");
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}

// The same with more than before.
template <int COUNT>
__device__ __forceinline__ void take_registers() {
    static_assert(COUNT % 8 == 0 && 24 <= COUNT && COUNT <= 256, "a multiple of 8 from 24 to 256");
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}
