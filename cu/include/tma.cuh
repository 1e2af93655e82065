// TMA: one thread asks the copy engine for a box of a tensor. sm_90 and newer.
#pragma once

// A CUtensorMap as a kernel takes it: 128 opaque bytes, `const __grid_constant__ TensorMap`. The copy engine reads
// them from the parameters themselves, so they must not be copied to local memory.
struct alignas(64) TensorMap {
    unsigned long long opaque[16];
};

// Fetches the box whose first element is (x, y), x innermost, into shared memory, and tells `barrier` of its bytes as
// they land. Elements outside the tensor arrive as zero, and count. PTX ISA, 'cp.async.bulk.tensor'.
__device__ __forceinline__ void tma_load_2d(unsigned destination, const TensorMap* map, int x, int y,
                                            unsigned barrier) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
        ::"r"(destination), "l"(map), "r"(x), "r"(y), "r"(barrier) : "memory");
}
