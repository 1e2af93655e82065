// Probe: 64 KiB of dynamic shared memory.
//
// Computes  Each block reverses 16384 words: it reads them all into shared memory, then writes them back to front.
// Proves    A block gets 48 KiB of shared memory without asking. More has to be dynamic, and allowed for the kernel
//           by an attribute (CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) before the launch.

constexpr int WORDS = 16384;

extern "C" __global__ void __launch_bounds__(256)
large_shared(const int* A, int* C, int N) {
    extern __shared__ int words[];
    const int first = blockIdx.x * WORDS;
    if (first + WORDS > N) return;
    for (int i = threadIdx.x; i < WORDS; i += 256) words[i] = A[first + i];
    __syncthreads();  // the last words are written by other threads than those that read them first
    for (int i = threadIdx.x; i < WORDS; i += 256) C[first + i] = words[WORDS - 1 - i];
}
