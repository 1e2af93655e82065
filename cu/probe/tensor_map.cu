// Probe: a tensor map passed by value.
//
// Computes  C = A for an M x N array of words, tile by tile: one thread of a block asks the copy engine for a
//           BM x BN = 64 x 32 box of A, all threads wait for its bytes, then write the tile to C.
// Proves    The map, encoded on the host, reaches the kernel as a 128-byte parameter that the copy engine can read.
// Shared    bytes 0 .. 8191  the box, rows of 128 bytes;  bytes 8192 .. 8199  the barrier
// Tails     The copy engine fills what lies outside A with zeros; the stores to C are guarded.

#include "mbarrier.cuh"
#include "tma.cuh"

extern "C" __global__ void __launch_bounds__(128)
tensor_map(const __grid_constant__ TensorMap map_A, int* C, int M, int N, int ldc) {
    __shared__ alignas(128) int box[BM][BN];  // the copy engine writes to 128-byte boundaries
    __shared__ alignas(8) unsigned long long full;
    const unsigned barrier = shared_address(&full);
    const int m0 = blockIdx.y * BM, n0 = blockIdx.x * BN;

    if (threadIdx.x == 0) {
        mbarrier_init(barrier, 1);
        fence_mbarrier_init();  // the copy engine must find the barrier initialised
        mbarrier_arrive_expect(barrier, sizeof(box));
        tma_load_2d(shared_address(box), &map_A, n0, m0, barrier);
    }
    __syncthreads();  // nobody waits on a barrier that is not initialised
    mbarrier_wait(barrier, 0);

    for (int i = threadIdx.x; i < BM * BN; i += 128) {
        const int m = m0 + i / BN, n = n0 + i % BN;
        if (m < M && n < N) C[(long long)m * ldc + n] = box[i / BN][i % BN];
    }
}
