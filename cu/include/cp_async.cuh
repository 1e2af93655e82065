// cp.async: copies from global to shared memory that pass no register. sm_80.
//
// A copy may read fewer bytes than it writes; the rest is zero. Copies are committed in groups, and waited for in the
// order of their groups. What a thread's copies wrote is visible to itself after its wait, to others after a barrier.
#pragma once

#include "shared.cuh"

// 4 bytes through L1, `bytes` (0 or 4) of them read. PTX ISA, 'cp.async'.
__device__ __forceinline__ void cp_async_4(unsigned shared, const void* global, int bytes) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared), "l"(global), "r"(bytes) : "memory");
}

// 16 bytes past L1, `bytes` (0 to 16) of them read; both addresses are multiples of 16. PTX ISA, 'cp.async'.
__device__ __forceinline__ void cp_async_16(unsigned shared, const void* global, int bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(global), "r"(bytes) : "memory");
}

// The same two with a predicate: what is not `inside` is zero, and nothing is read. PTX ISA 8.3, 'cp.async',
// ignore-src.
__device__ __forceinline__ void cp_async_4_if(bool inside, unsigned shared, const void* global) {
    asm volatile(
        "{\n\t"
        ".reg .pred outside;\n\t"
        "setp.eq.s32 outside, %2, 0;\n\t"
        "cp.async.ca.shared.global [%0], [%1], 4, outside;\n\t"
        "}" ::"r"(shared), "l"(global), "r"((int)inside) : "memory");
}

__device__ __forceinline__ void cp_async_16_if(bool inside, unsigned shared, const void* global) {
    asm volatile(
        "{\n\t"
        ".reg .pred outside;\n\t"
        "setp.eq.s32 outside, %2, 0;\n\t"
        "cp.async.cg.shared.global [%0], [%1], 16, outside;\n\t"
        "}" ::"r"(shared), "l"(global), "r"((int)inside) : "memory");
}

// Closes the group of all copies since the last one. PTX ISA, 'cp.async.commit_group'.
__device__ __forceinline__ void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most `PENDING` of the latest groups are unfinished. PTX ISA, 'cp.async.wait_group'.
template <int PENDING>
__device__ __forceinline__ void cp_async_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}
