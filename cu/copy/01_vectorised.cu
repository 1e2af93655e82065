// 01 vectorised copy: C = A, any number of bytes.
//
// Idea      16 bytes a thread, and four loads in flight before the first store: what device memory needs to run at
//           its rate is many bytes on their way at once (4.8 TB/s x 0.7 us is 3.4 MB, 25 KB for each of 132 SMs).
//
// Grid      As many blocks as the SMs hold at once; each thread strides over the array by the whole grid.
// Limit     Device memory: every byte is read once and written once.
// Tails     Bytes beyond the last 16 are moved one by one by the first threads.

constexpr int UNROLL = 4;

extern "C" __global__ void __launch_bounds__(THREADS)
copy(const uint4* __restrict__ A, uint4* __restrict__ C, long long bytes) {
    const long long words = bytes / 16;
    const long long stride = (long long)gridDim.x * THREADS;
    const long long thread = (long long)blockIdx.x * THREADS + threadIdx.x;

    long long i = thread;
    for (; i + (UNROLL - 1) * stride < words; i += UNROLL * stride) {
        uint4 value[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) value[u] = __ldcs(&A[i + u * stride]);  // read once: first to be evicted
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) __stcs(&C[i + u * stride], value[u]);
    }
    for (; i < words; i += stride) C[i] = A[i];

    const long long tail = words * 16 + thread;
    if (tail < bytes) reinterpret_cast<char*>(C)[tail] = reinterpret_cast<const char*>(A)[tail];
}
