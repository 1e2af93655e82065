// Counts the words in which two results differ, on top of what was counted before.
//
//   C, D    results of the same bytes, padding included
//   words   2-byte words of each
//   found   how many differ

extern "C" __global__ void same_bits(const unsigned short* C, const unsigned short* D, long long words,
                                     unsigned long long* found) {
    unsigned long long different = 0;
    const long long step = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < words; i += step)
        different += C[i] != D[i];
    if (different) atomicAdd(found, different);
}
