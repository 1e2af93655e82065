// One shared-memory instruction at addresses that the caller chose, for a profiler to count its passes.
//
//   addresses   a byte offset a lane, or -1: the lane takes no part (ldmatrix: every lane has an address)
//   result      what was loaded, so that it is not in vain
//
// One warp, and one such instruction: nothing else touches shared memory. What it holds is left as it is, since its
// contents change no pass.

#include "shared.cuh"

__device__ __forceinline__ unsigned memory_base() {
    __shared__ alignas(128) unsigned char memory[32768];
    return shared_address(memory);
}

#define ACCESS_KERNEL(NAME, STATEMENT)                                                            \
    extern "C" __global__ void NAME(const int* addresses, unsigned* result) {                     \
        const int offset = addresses[threadIdx.x];                                                \
        const unsigned address = memory_base() + offset;                                          \
        unsigned x = threadIdx.x, y = 0, z = 0, w = 0;                                            \
        if (offset >= 0) STATEMENT                                                                \
        result[threadIdx.x] = x ^ y ^ z ^ w;                                                      \
    }

#define LOAD(TEXT, ...) asm volatile(TEXT : __VA_ARGS__ : "r"(address) : "memory");
#define STORE(TEXT, ...) asm volatile(TEXT ::"r"(address), __VA_ARGS__ : "memory");

ACCESS_KERNEL(load_4, LOAD("ld.shared.b32 %0, [%1];", "=r"(x)))
ACCESS_KERNEL(load_8, LOAD("ld.shared.v2.b32 {%0, %1}, [%2];", "=r"(x), "=r"(y)))
ACCESS_KERNEL(load_16, LOAD("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];", "=r"(x), "=r"(y), "=r"(z), "=r"(w)))
ACCESS_KERNEL(store_4, STORE("st.shared.b32 [%0], %1;", "r"(x)))
ACCESS_KERNEL(store_8, STORE("st.shared.v2.b32 [%0], {%1, %2};", "r"(x), "r"(y)))
ACCESS_KERNEL(store_16, STORE("st.shared.v4.b32 [%0], {%1, %2, %3, %4};", "r"(x), "r"(y), "r"(z), "r"(w)))

// Whole warps only: without a branch.
#define LDMATRIX_KERNEL(NAME, STATEMENT)                                                          \
    extern "C" __global__ void NAME(const int* addresses, unsigned* result) {                     \
        const unsigned address = memory_base() + addresses[threadIdx.x];                          \
        unsigned x = 0, y = 0, z = 0, w = 0;                                                      \
        STATEMENT                                                                                 \
        result[threadIdx.x] = x ^ y ^ z ^ w;                                                      \
    }

LDMATRIX_KERNEL(ldmatrix_x1, LOAD("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];", "=r"(x)))
LDMATRIX_KERNEL(ldmatrix_x2, LOAD("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];", "=r"(x), "=r"(y)))
LDMATRIX_KERNEL(ldmatrix_x4, LOAD("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];",
                                  "=r"(x), "=r"(y), "=r"(z), "=r"(w)))
