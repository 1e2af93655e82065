// Probe: programmatic dependent launch.
//
// Computes  primary writes C = A + 1, secondary then makes it C = 2 C.
// Proves    The secondary kernel is launched with programmatic serialization. The primary lets it start at once and
//           only then, 20 us later, writes; the secondary waits for the primary's writes by griddepcontrol.wait. With
//           that wait left out, it doubles what was in C before, and the result is wrong.

#include "programmatic.cuh"

extern "C" __global__ void __launch_bounds__(256)
primary(const int* A, int* C, int N) {
    launch_dependents();
    unsigned long long start, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    do {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (now - start < 20000);  // nanoseconds
    const int i = blockIdx.x * 256 + threadIdx.x;
    if (i < N) C[i] = A[i] + 1;
}

extern "C" __global__ void __launch_bounds__(256)
secondary(int* C, int N) {
    wait_for_prerequisites();
    const int i = blockIdx.x * 256 + threadIdx.x;
    if (i < N) C[i] *= 2;
}
