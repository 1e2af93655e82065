// One wgmma, of operands that the caller chose: what it reads of shared memory, and which register gets which sum.
// sm_90a.
//
//   memory   MEMORY bytes, copied to shared memory at a multiple of 1024
//   a, b     descriptors whose start counts from there
//   A        A[thread * 4 + w] is register w of a thread, where A comes from registers
//   D        D[thread * N / 2 + i] is sum i of a thread
//   status   1 where shared memory lies elsewhere than at a multiple of 1024: then nothing is said
//
// One warpgroup. N is the instruction's; A_MN_MAJOR and B_MN_MAJOR are its transpose immediates; TYPE_BF16 or
// TYPE_FP16. Descriptors come from parameters: of constants, some releases of NVRTC crash.

#include "shared.cuh"

constexpr int MEMORY = 36864;

#if defined(TYPE_FP16)
#define TYPES "f32.f16.f16"
#else
#define TYPES "f32.bf16.bf16"
#endif

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)
#define LIST_FOR(n) LIST_##n
#define LIST(n) LIST_FOR(n)

// The registers of D for each N, all of operands 0 .. 127.
#define LIST_8 "%0, %1, %2, %3"
#define LIST_16 LIST_8 ", %4, %5, %6, %7"
#define LIST_24 LIST_16 ", %8, %9, %10, %11"
#define LIST_32 LIST_24 ", %12, %13, %14, %15"
#define LIST_40 LIST_32 ", %16, %17, %18, %19"
#define LIST_48 LIST_40 ", %20, %21, %22, %23"
#define LIST_56 LIST_48 ", %24, %25, %26, %27"
#define LIST_64 LIST_56 ", %28, %29, %30, %31"
#define LIST_72 LIST_64 ", %32, %33, %34, %35"
#define LIST_80 LIST_72 ", %36, %37, %38, %39"
#define LIST_88 LIST_80 ", %40, %41, %42, %43"
#define LIST_96 LIST_88 ", %44, %45, %46, %47"
#define LIST_104 LIST_96 ", %48, %49, %50, %51"
#define LIST_112 LIST_104 ", %52, %53, %54, %55"
#define LIST_120 LIST_112 ", %56, %57, %58, %59"
#define LIST_128 LIST_120 ", %60, %61, %62, %63"
#define LIST_136 LIST_128 ", %64, %65, %66, %67"
#define LIST_144 LIST_136 ", %68, %69, %70, %71"
#define LIST_152 LIST_144 ", %72, %73, %74, %75"
#define LIST_160 LIST_152 ", %76, %77, %78, %79"
#define LIST_168 LIST_160 ", %80, %81, %82, %83"
#define LIST_176 LIST_168 ", %84, %85, %86, %87"
#define LIST_184 LIST_176 ", %88, %89, %90, %91"
#define LIST_192 LIST_184 ", %92, %93, %94, %95"
#define LIST_200 LIST_192 ", %96, %97, %98, %99"
#define LIST_208 LIST_200 ", %100, %101, %102, %103"
#define LIST_216 LIST_208 ", %104, %105, %106, %107"
#define LIST_224 LIST_216 ", %108, %109, %110, %111"
#define LIST_232 LIST_224 ", %112, %113, %114, %115"
#define LIST_240 LIST_232 ", %116, %117, %118, %119"
#define LIST_248 LIST_240 ", %120, %121, %122, %123"
#define LIST_256 LIST_248 ", %124, %125, %126, %127"

#define FOUR(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define SIXTEEN(i) FOUR(i), FOUR(i + 4), FOUR(i + 8), FOUR(i + 12)
#define ALL_SUMS SIXTEEN(0), SIXTEEN(16), SIXTEEN(32), SIXTEEN(48), SIXTEEN(64), SIXTEEN(80), SIXTEEN(96), SIXTEEN(112)

// PTX ISA, 'wgmma.mma_async'. Everything in one statement, so that nobody touches D before it is there; all 128
// operands stand for any N, and D holds zeros before.
#define WGMMA(A_OPERAND, B_OPERAND, IMMEDIATES)                                                   \
    "{\n\t.reg .pred add;\n\tsetp.eq.s32 add, 0, 0;\n\twgmma.fence.sync.aligned;\n\t"             \
    "wgmma.mma_async.sync.aligned.m64n" TEXT(N) "k16." TYPES " {" LIST(N) "}, " A_OPERAND ", "    \
    B_OPERAND ", add, 1, 1, " IMMEDIATES ";\n\t"                                                  \
    "wgmma.commit_group.sync.aligned;\n\twgmma.wait_group.sync.aligned 0;\n\t}"

// Fills shared memory, and gives its address.
__device__ unsigned filled(const uint4* memory, int* status) {
    __shared__ alignas(1024) uint4 held[MEMORY / 16];
    for (int i = threadIdx.x; i < MEMORY / 16; i += 128) held[i] = memory[i];
    const unsigned address = shared_address(held);
    if (threadIdx.x == 0) *status = address % 1024 != 0;
    asm volatile("fence.proxy.async;" ::: "memory");  // wgmma reads it by the asynchronous proxy
    __syncthreads();
    return address;
}

// The descriptor, from there on.
__device__ unsigned long long moved(unsigned long long descriptor, unsigned address) {
    return descriptor + (address & 0x3ffff) / 16;
}

__device__ void keep(const float (&d)[128], float* D) {
    for (int i = 0; i < N / 2; ++i) D[threadIdx.x * (N / 2) + i] = d[i];
}

extern "C" __global__ void __launch_bounds__(128)
products_shared(const uint4* memory, unsigned long long a, unsigned long long b, float* D, int* status) {
    const unsigned address = filled(memory, status);
    float d[128] = {};
    asm volatile(WGMMA("%128", "%129", TEXT(A_MN_MAJOR) ", " TEXT(B_MN_MAJOR))
                 : ALL_SUMS
                 : "l"(moved(a, address)), "l"(moved(b, address))
                 : "memory");
    keep(d, D);
}

extern "C" __global__ void __launch_bounds__(128)
products_registers(const uint4* memory, const unsigned* A, unsigned long long b, float* D, int* status) {
    const unsigned address = filled(memory, status);
    const unsigned* a = A + threadIdx.x * 4;
    float d[128] = {};
    asm volatile(WGMMA("{%128, %129, %130, %131}", "%132", TEXT(B_MN_MAJOR))
                 : ALL_SUMS
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(moved(b, address))
                 : "memory");
    keep(d, D);
}
