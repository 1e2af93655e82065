// 01 vectorised copy: C = A, any number of bytes.
//
// Idea      16 bytes a thread, and UNROLL loads in flight before the first store: what device memory needs to run at
//           its rate is many bytes on their way at once (4.8 TB/s x 0.7 us is 3.4 MB, 25 KB for each of 132 SMs).
//
// Tile      A block copies UNROLL x THREADS x 16 neighbouring bytes and ends; a block that starts takes the next piece,
//           so the blocks in flight work on one stretch of memory. A fixed grid that strides over the array would work
//           on UNROLL stretches of each array at once, megabytes apart, and the SMs that finish early would be idle.
// Threads   Thread t moves the 16 bytes t + u THREADS, u = 0 .. UNROLL - 1; a warp 512 bytes, four whole lines.
// Shared    None.
// Tails     In the last block: whole words as far as there are any, then the last few bytes one by one.
// Stream    STREAM = 1 marks loads and stores of whole pieces 'evict first': no byte is touched twice.
// Limit     Device memory: every byte is read once and written once.

__device__ __forceinline__ uint4 load_word(const uint4* from) { return STREAM ? __ldcs(from) : *from; }

__device__ __forceinline__ void store_word(uint4* to, uint4 value) {
    if (STREAM)
        __stcs(to, value);
    else
        *to = value;
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)  // 1: registers for all loads in flight
copy(const uint4* __restrict__ A, uint4* __restrict__ C, long long bytes) {
    const long long words = bytes / 16;
    const long long first = (long long)blockIdx.x * (UNROLL * THREADS) + threadIdx.x;

    if ((blockIdx.x + 1LL) * (UNROLL * THREADS) <= words) {
        uint4 value[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) value[u] = load_word(&A[first + u * THREADS]);
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) store_word(&C[first + u * THREADS], value[u]);
        return;
    }
#pragma unroll 1
    for (long long i = first; i < words; i += THREADS) C[i] = A[i];

    const long long tail = words * 16 + threadIdx.x;
    if (tail < bytes) reinterpret_cast<char*>(C)[tail] = reinterpret_cast<const char*>(A)[tail];
}
