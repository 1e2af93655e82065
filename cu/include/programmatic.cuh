// Programmatic dependent launch: the next kernel of a stream may start before this one has ended. sm_90 and newer;
// below, where a launch is never programmatic, there is nothing to say or to wait for.
#pragma once

// Lets the dependent kernel be scheduled as soon as every block has said so or ended. It promises nothing about memory.
// PTX ISA, 'griddepcontrol'.
__device__ __forceinline__ void launch_dependents() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Waits until the kernel before has ended and its writes can be seen. PTX ISA, 'griddepcontrol'.
__device__ __forceinline__ void wait_for_prerequisites() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
