// What a TMA load leaves in shared memory, byte by byte. sm_90.
//
//   map      the tensor map of the box
//   memory   MEMORY bytes: shared memory after the load, in which every byte was 0xff before
//   status   1 where shared memory lies elsewhere than at a multiple of 1024, 2 where the load did not complete
//   offset   where in shared memory the box goes, a multiple of 128
//   bytes    what the barrier expects
//
// One block of 128 threads. The wait ends by itself, so that a wrong count of bytes is an answer and no hang.

#include "mbarrier.cuh"
#include "tma.cuh"

constexpr int MEMORY = 16384, TRIES = 1 << 16;

// PTX ISA, 'cp.async.bulk.tensor', three dimensions: tma.cuh has only what kernels use.
__device__ __forceinline__ void tma_load_3d(unsigned destination, const TensorMap* map, int x, int y, int z,
                                            unsigned barrier) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];"
        ::"r"(destination), "l"(map), "r"(x), "r"(y), "r"(z), "r"(barrier) : "memory");
}

// Whether the barrier's first phase completed within TRIES tries. PTX ISA, 'mbarrier.try_wait'.
__device__ bool completed(unsigned barrier) {
    for (int i = 0; i < TRIES; ++i) {
        int done;
        asm volatile(
            "{\n\t.reg .pred done;\n\t"
            "mbarrier.try_wait.parity.shared::cta.b64 done, [%1], 0;\n\t"
            "selp.s32 %0, 1, 0, done;\n\t}" : "=r"(done) : "r"(barrier) : "memory");
        if (done) return true;
    }
    return false;
}

template <int DIMENSIONS>
__device__ void load(const TensorMap* map, uint4* memory, int* status, unsigned offset, unsigned bytes, int x, int y,
                     int z) {
    __shared__ alignas(1024) uint4 held[MEMORY / 16];
    __shared__ alignas(8) unsigned long long full;
    const unsigned barrier = shared_address(&full), address = shared_address(held);
    for (int i = threadIdx.x; i < MEMORY / 16; i += 128) held[i] = {~0u, ~0u, ~0u, ~0u};
    asm volatile("fence.proxy.async;" ::: "memory");  // the copy engine writes after these writes
    if (threadIdx.x == 0) {
        mbarrier_init(barrier, 1);
        fence_mbarrier_init();
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        mbarrier_arrive_expect(barrier, bytes);
        if (DIMENSIONS == 2) {
            tma_load_2d(address + offset, map, x, y, barrier);
        } else {
            tma_load_3d(address + offset, map, x, y, z, barrier);
        }
    }
    const bool done = completed(barrier);
    if (threadIdx.x == 0) *status = address % 1024 ? 1 : done ? 0 : 2;
    for (int i = threadIdx.x; i < MEMORY / 16; i += 128) memory[i] = held[i];
}

extern "C" __global__ void __launch_bounds__(128)
tma_box_2d(const __grid_constant__ TensorMap map, uint4* memory, int* status, unsigned offset, unsigned bytes, int x,
           int y) {
    load<2>(&map, memory, status, offset, bytes, x, y, 0);
}

extern "C" __global__ void __launch_bounds__(128)
tma_box_3d(const __grid_constant__ TensorMap map, uint4* memory, int* status, unsigned offset, unsigned bytes, int x,
           int y, int z) {
    load<3>(&map, memory, status, offset, bytes, x, y, z);
}
