// TMA: one thread asks the copy engine for a box of a tensor, or hands it one. sm_90 and newer.
//
// Boxes are named by the coordinates of their first element, x innermost, in elements; what lies outside the tensor is
// read as zero and not written. The box, its swizzle and the tensor are the map's (lowlevel/tensormap.py).
//
// x must be a multiple of 16 bytes: loads from elsewhere ended in an illegal instruction, recorded on an H200
// (tests/fixtures/tma.json). Kernels' coordinates are multiples of their tiles, which keep the rule.
#pragma once

// A CUtensorMap as a kernel takes it: 128 opaque bytes, `const __grid_constant__ TensorMap`. The copy engine reads
// them from the parameters themselves, so they must not be copied to local memory.
struct alignas(64) TensorMap {
    unsigned long long opaque[16];
};

// Fetches the map itself, so that the first box does not wait for it. PTX ISA, 'prefetch', .tensormap.
__device__ __forceinline__ void prefetch_map(const TensorMap* map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// Fetches the box at (x, y) into shared memory, and tells `barrier` of its bytes as they land. Elements outside the
// tensor arrive as zero, and count. PTX ISA, 'cp.async.bulk.tensor'.
__device__ __forceinline__ void tma_load_2d(unsigned destination, const TensorMap* map, int x, int y,
                                            unsigned barrier) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
        ::"r"(destination), "l"(map), "r"(x), "r"(y), "r"(barrier) : "memory");
}

// The same for every block of the cluster whose bit is set in `blocks`, at the same place in its shared memory, and its
// own barrier at the place of `barrier` is told. One read of L2 serves them all. PTX ISA, 'cp.async.bulk.tensor',
// .multicast::cluster.
__device__ __forceinline__ void tma_load_2d_multicast(unsigned destination, const TensorMap* map, int x, int y,
                                                      unsigned barrier, unsigned short blocks) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
        "[%0], [%1, {%2, %3}], [%4], %5;"
        ::"r"(destination), "l"(map), "r"(x), "r"(y), "r"(barrier), "h"(blocks) : "memory");
}

// Has L2 fetch the box at (x, y), so that a load of it finds it there. PTX ISA, 'cp.async.bulk.prefetch.tensor'.
__device__ __forceinline__ void tma_prefetch_2d(const TensorMap* map, int x, int y) {
    asm volatile("cp.async.bulk.prefetch.tensor.2d.L2.global [%0, {%1, %2}];" ::"l"(map), "r"(x), "r"(y) : "memory");
}

// Writes the box at (x, y) from shared memory; part of this thread's next group. Whoever wrote that memory must have
// fenced (below) and met the caller at a barrier. PTX ISA, 'cp.async.bulk.tensor'.
__device__ __forceinline__ void tma_store_2d(const TensorMap* map, unsigned source, int x, int y) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];"
                 ::"l"(map), "r"(x), "r"(y), "r"(source) : "memory");
}

// The policy of what nobody reads soon: its lines leave L2 before others. PTX ISA, 'createpolicy'.
__device__ __forceinline__ unsigned long long evict_first() {
    unsigned long long policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

// The same store under a policy. PTX ISA, 'cp.async.bulk.tensor', .L2::cache_hint.
__device__ __forceinline__ void tma_store_2d(const TensorMap* map, unsigned source, int x, int y,
                                             unsigned long long policy) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group.L2::cache_hint [%0, {%1, %2}], [%3], %4;"
                 ::"l"(map), "r"(x), "r"(y), "r"(source), "l"(policy) : "memory");
}

// Closes the group of this thread's stores since the last one. PTX ISA, 'cp.async.bulk.commit_group'.
__device__ __forceinline__ void tma_store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

// Waits until all but the latest `PENDING` of this thread's groups have read their shared memory, which may then be
// written again. PTX ISA, 'cp.async.bulk.wait_group', .read.
template <int PENDING>
__device__ __forceinline__ void tma_store_wait_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(PENDING) : "memory");
}

// Orders this thread's accesses to shared memory before later ones by the copy engine or wgmma, which take another way
// to it (the async proxy). Each thread that wrote fences, then a barrier, then one thread stores. PTX ISA,
// 'membar / fence', fence.proxy.async.
__device__ __forceinline__ void fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
