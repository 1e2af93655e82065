// Clusters of one GPC on neighbouring tiles.
//
// SMs of one GPC that load the same bytes at about the same time are served by one read of L2, as long as the load is
// not multicast. So the clusters of a GPC should take tiles that share the operand which they do not multicast: a
// column of eight tiles in each wave. Which GPC a block runs on follows neither from its number nor from a register:
// SMs are told apart by %smid, and the host has found out which of them share a GPC (lowlevel/gpc.py). Any table will
// do: a cluster claims a place in its GPC's column if one is free and else in the next column, so that places are each
// taken once whatever the table says; it decides on locality alone.
//
// Counters, zero before and after: [0] clusters that have claimed and [1 + c] those that asked for a place in column c.
#pragma once

// This SM's number. PTX ISA, 'Special Registers: %smid'.
__device__ __forceinline__ unsigned sm_id() {
    unsigned id;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(id));
    return id;
}

constexpr int COLUMN = 8;  // places of a GPC: of its 16 or 18 SMs eight clusters of two are always there

// A place of 0 .. clusters - 1 that no other cluster has. One thread of each cluster asks, once.
__device__ __forceinline__ int claim_place(int* counters, const unsigned char* gpc_of_sm, int clusters) {
    const int columns = (clusters + COLUMN - 1) / COLUMN;
    int column = gpc_of_sm[sm_id()] % columns;
    while (true) {  // there are as many places as clusters: the others leave one free
        const int slot = atomicAdd(&counters[1 + column], 1);
        if (slot < min(COLUMN, clusters - column * COLUMN)) return column * COLUMN + slot;
        column = column + 1 == columns ? 0 : column + 1;
    }
}

// Afterwards, any time: the last cluster to call zeroes the counters for the next launch.
__device__ __forceinline__ void leave_claim(int* counters, int clusters) {
    __threadfence();  // this claim, before it is counted
    if (atomicAdd(&counters[0], 1) != clusters - 1) return;
    const int columns = (clusters + COLUMN - 1) / COLUMN;
#pragma unroll 1
    for (int i = 0; i <= columns; ++i) atomicExch(&counters[i], 0);
    __threadfence();  // before dependent launches may begin
}
