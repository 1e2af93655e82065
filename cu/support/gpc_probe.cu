// Which SMs share a GPC? The blocks of a cluster do: each writes down its SM. Launched with so much shared memory that
// an SM holds one block, and each block stays until all others have begun, so that every SM is seen.

extern "C" __global__ void gpc_probe(unsigned* sm_of_block) {
    if (threadIdx.x != 0) return;
    unsigned sm;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    sm_of_block[blockIdx.x] = sm;
    unsigned long long begin, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
    do {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (now - begin < 20000);  // ns: longer than a launch takes to fill the GPU
}
