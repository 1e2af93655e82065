// Clusters: blocks that run on one GPC together and reach each other's shared memory. sm_90 and newer.
#pragma once

// This block's number in its cluster. PTX ISA, 'Special Registers: %cluster_ctarank'.
__device__ __forceinline__ unsigned cluster_rank() {
    unsigned rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

// Every thread of every block of the cluster meets. Writes before it (release) are seen after it (acquire).
// PTX ISA, 'barrier.cluster'.
__device__ __forceinline__ void cluster_barrier() {
    asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// The same in two halves, with work between them. The arrival is relaxed: it orders nothing, so what others are to see
// must have been fenced (fence_mbarrier_init is the fence of new barriers). PTX ISA, 'barrier.cluster'.
__device__ __forceinline__ void cluster_arrive_relaxed() {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}

__device__ __forceinline__ void cluster_wait() {
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// The address, in the cluster's shared window, of `address` of one's own shared memory in block `rank`.
// PTX ISA, 'mapa'.
__device__ __forceinline__ unsigned map_to_rank(unsigned address, unsigned rank) {
    unsigned mapped;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(address), "r"(rank));
    return mapped;
}

// A word of another block's shared memory. PTX ISA, 'ld', state space .shared::cluster.
__device__ __forceinline__ unsigned load_shared_cluster(unsigned address) {
    unsigned value;
    asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(value) : "r"(address) : "memory");
    return value;
}

// The reverse. PTX ISA, 'st', state space .shared::cluster.
__device__ __forceinline__ void store_shared_cluster(unsigned address, unsigned value) {
    asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}
