// Probe: distributed shared memory in a cluster.
//
// Computes  Each cluster of 4 blocks takes 1024 words, a block 256. Block r loads its own 256 words into its shared
//           memory and writes, to its own place in C, the words of its right neighbour, (r + 1) % 4, which it reads
//           from the neighbour's shared memory.
// Proves    Cluster launch: the four blocks run on one GPC together, and `mapa` reaches across.
// Barriers  The first makes every block's words visible to the others before anyone reads. The second keeps a block
//           from ending while a neighbour still reads: the memory of a block that has ended is nobody's.

#include "cluster.cuh"

extern "C" __global__ void __launch_bounds__(256)
cluster_shared(const unsigned* A, unsigned* C, int N) {
    __shared__ unsigned words[256];
    const int i = blockIdx.x * 256 + threadIdx.x;
    words[threadIdx.x] = i < N ? A[i] : 0;
    cluster_barrier();

    const unsigned own = static_cast<unsigned>(__cvta_generic_to_shared(&words[threadIdx.x]));
    const unsigned value = load_shared_cluster(map_to_rank(own, (cluster_rank() + 1) % 4));
    if (i < N) C[i] = value;
    cluster_barrier();
}
