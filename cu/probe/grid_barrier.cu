// Probe: a barrier among all blocks of a grid.
//
// Computes  C[i] = A[i] + (sum of all of A), int32 with wraparound: no block can know the sum before every block has
//           added up its part, so a barrier that lets one block through early gives a wrong C.
// Proves    Cooperative launch: all blocks are resident at once. Without that promise, blocks that wait would keep
//           the ones they wait for from ever starting.
// Memory    workspace[0] counts arrivals; workspace[1 + b] is block b's partial sum. Each launch adds gridDim.x to the
//           counter and waits for the next multiple of it, so that nothing has to be cleared between launches.

// The barrier's two halves order memory between blocks: what a block wrote before it arrives (release) is seen by one
// that has seen the arrival (acquire). PTX ISA, 'Memory Consistency Model'.
__device__ void arrive(unsigned* counter) {
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
}

__device__ unsigned arrivals(const unsigned* counter) {
    unsigned count;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(count) : "l"(counter) : "memory");
    return count;
}

__device__ void grid_wide_barrier(unsigned* counter, unsigned before) {
    __syncthreads();  // the whole block has written before its one thread says so
    if (threadIdx.x == 0) {
        const unsigned target = before - before % gridDim.x + gridDim.x;
        arrive(counter);
        while (arrivals(counter) < target) {}
    }
    __syncthreads();  // no thread goes on before that thread has seen them all
}

extern "C" __global__ void __launch_bounds__(256)
grid_barrier(const int* A, int* C, int N, unsigned* workspace) {
    // Read before this block arrives, so the count cannot yet include all of this launch's arrivals.
    unsigned before = 0;
    if (threadIdx.x == 0) before = arrivals(workspace);

    int* partial = reinterpret_cast<int*>(workspace + 1);
    __shared__ int sum;
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();
    int mine = 0;
    for (int i = blockIdx.x * 256 + threadIdx.x; i < N; i += gridDim.x * 256) mine += A[i];
    atomicAdd(&sum, mine);
    __syncthreads();
    if (threadIdx.x == 0) partial[blockIdx.x] = sum;

    grid_wide_barrier(workspace, before);

    int total = 0;
    for (int b = 0; b < gridDim.x; ++b) total += __ldcg(&partial[b]);  // past the L1, which may hold older values
    for (int i = blockIdx.x * 256 + threadIdx.x; i < N; i += gridDim.x * 256) C[i] = A[i] + total;
}
