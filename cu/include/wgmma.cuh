// wgmma: D = A B + D on a tensor core, by the 128 threads of a warpgroup together, A and B in shared memory. sm_90a.
//
// D is 64 x N, in registers. With w the warp's number in its group, r = lane / 4 and c = lane % 4, a thread holds of
// every 8 columns j
//
//   d[4 j + 0], d[4 j + 1]   row 16 w + r,      columns 8 j + 2 c, 8 j + 2 c + 1
//   d[4 j + 2], d[4 j + 3]   row 16 w + r + 8,  the same columns
//
// A is 64 rows and B N columns of 32 bytes along k: 16 elements of 16 bits, 32 of fp8. wgmma is asynchronous: it reads
// shared memory and writes D some time between its start and the wait for its group, and until then nobody may touch
// either. The order is fence (D and shared memory are ready), any number of wgmma on one D, commit, wait.
// PTX ISA, 'Register Fragments and Shared Memory Matrix Layouts' of wgmma.mma_async.m64nNk16.
#pragma once

#include "element.cuh"

// Before the first wgmma, and where registers of D were written since the last. PTX ISA, 'wgmma.fence'.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

// Closes the group of all wgmma since the last one. PTX ISA, 'wgmma.commit_group'.
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Waits until at most `PENDING` of the latest groups are unfinished. PTX ISA, 'wgmma.wait_group'.
template <int PENDING>
__device__ __forceinline__ void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

// The compiler does not know that D changes until the wait. This ties D to its place among the asm statements, so that
// no use of D moves across: after a wait, before D is read.
template <int COUNT>
__device__ __forceinline__ void wgmma_fence_registers(float (&d)[COUNT]) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

// Operand tiles in shared memory, as TMA writes them with its 128-byte swizzle, each aligned to 1024 bytes:
//
//   K-major    rows of 128 bytes along k, one for each m (A) or n (B). Eight rows are the unit of the swizzle.
//   MN-major   blocks of 64 m or n: rows of 128 bytes along m or n, one for each of 64 k. 16-bit elements only.
//
// Either way 64 of m or n take 8192 bytes.
constexpr unsigned WGMMA_BLOCK_BYTES = 8192;

// From one k of an instruction to the next, in such a tile: 32 bytes along the row, or 16 rows.
template <bool MN_MAJOR>
constexpr unsigned WGMMA_K_STEP_BYTES = MN_MAJOR ? 2048 : 32;

// What wgmma is told of an operand in shared memory, 64 bits. The high word is a constant: only the low one moves.
// PTX ISA, 'Matrix Descriptor Format' and 'Strides'. All sizes are in units of 16 bytes.
//
//   bits 0 .. 13    start address, of which 18 bits count
//   bits 16 .. 29   leading dimension byte offset: of MN-major tiles from a block of 64 to the next; else not used
//   bits 32 .. 45   stride dimension byte offset: from 8 rows of 128 bytes to the next 8
//   bits 49 .. 51   base offset: 0 as long as tiles begin at multiples of 1024 bytes
//   bits 62 .. 63   swizzle: 1 is 128 bytes
struct MatrixDescriptor {
    unsigned low, high;

    // `bytes` further on, a multiple of 16.
    __device__ __forceinline__ MatrixDescriptor advance(unsigned bytes) const { return {low + bytes / 16, high}; }

    __device__ __forceinline__ unsigned long long bits() const { return (unsigned long long)high << 32 | low; }
};

// The descriptor of the tile at `address`, shared.
__device__ __forceinline__ MatrixDescriptor matrix_descriptor(unsigned address) {
    constexpr unsigned SWIZZLE_128B = 1, EIGHT_ROWS = 1024;
    return {(address & 0x3ffff) / 16 | WGMMA_BLOCK_BYTES / 16 << 16, SWIZZLE_128B << 30 | EIGHT_ROWS / 16};
}

// The instruction's text wants every register by its number: the lists of D's names, and of D's elements, by sixteen
// columns, which are eight registers.
#define WGMMA_TEXT_16 "%0, %1, %2, %3, %4, %5, %6, %7"
#define WGMMA_TEXT_32 WGMMA_TEXT_16 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define WGMMA_TEXT_48 WGMMA_TEXT_32 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define WGMMA_TEXT_64 WGMMA_TEXT_48 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define WGMMA_TEXT_80 WGMMA_TEXT_64 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define WGMMA_TEXT_96 WGMMA_TEXT_80 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define WGMMA_TEXT_112 WGMMA_TEXT_96 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define WGMMA_TEXT_128 WGMMA_TEXT_112 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define WGMMA_TEXT_144 WGMMA_TEXT_128 ", %64, %65, %66, %67, %68, %69, %70, %71"
#define WGMMA_TEXT_160 WGMMA_TEXT_144 ", %72, %73, %74, %75, %76, %77, %78, %79"
#define WGMMA_TEXT_176 WGMMA_TEXT_160 ", %80, %81, %82, %83, %84, %85, %86, %87"
#define WGMMA_TEXT_192 WGMMA_TEXT_176 ", %88, %89, %90, %91, %92, %93, %94, %95"
#define WGMMA_TEXT_208 WGMMA_TEXT_192 ", %96, %97, %98, %99, %100, %101, %102, %103"
#define WGMMA_TEXT_224 WGMMA_TEXT_208 ", %104, %105, %106, %107, %108, %109, %110, %111"
#define WGMMA_TEXT_240 WGMMA_TEXT_224 ", %112, %113, %114, %115, %116, %117, %118, %119"
#define WGMMA_TEXT_256 WGMMA_TEXT_240 ", %120, %121, %122, %123, %124, %125, %126, %127"

#define WGMMA_EIGHT(i) \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), \
        "+f"(d[i + 7])
#define WGMMA_SUMS_16 WGMMA_EIGHT(0)
#define WGMMA_SUMS_32 WGMMA_SUMS_16, WGMMA_EIGHT(8)
#define WGMMA_SUMS_48 WGMMA_SUMS_32, WGMMA_EIGHT(16)
#define WGMMA_SUMS_64 WGMMA_SUMS_48, WGMMA_EIGHT(24)
#define WGMMA_SUMS_80 WGMMA_SUMS_64, WGMMA_EIGHT(32)
#define WGMMA_SUMS_96 WGMMA_SUMS_80, WGMMA_EIGHT(40)
#define WGMMA_SUMS_112 WGMMA_SUMS_96, WGMMA_EIGHT(48)
#define WGMMA_SUMS_128 WGMMA_SUMS_112, WGMMA_EIGHT(56)
#define WGMMA_SUMS_144 WGMMA_SUMS_128, WGMMA_EIGHT(64)
#define WGMMA_SUMS_160 WGMMA_SUMS_144, WGMMA_EIGHT(72)
#define WGMMA_SUMS_176 WGMMA_SUMS_160, WGMMA_EIGHT(80)
#define WGMMA_SUMS_192 WGMMA_SUMS_176, WGMMA_EIGHT(88)
#define WGMMA_SUMS_208 WGMMA_SUMS_192, WGMMA_EIGHT(96)
#define WGMMA_SUMS_224 WGMMA_SUMS_208, WGMMA_EIGHT(104)
#define WGMMA_SUMS_240 WGMMA_SUMS_224, WGMMA_EIGHT(112)
#define WGMMA_SUMS_256 WGMMA_SUMS_240, WGMMA_EIGHT(120)

#if defined(TYPE_FP8)
#define WGMMA_SHAPE(n) "m64n" #n "k32.f32.e4m3.e4m3"
#define WGMMA_MAJOR(a, b) ""
#elif defined(TYPE_FP16)
#define WGMMA_SHAPE(n) "m64n" #n "k16.f32.f16.f16"
#define WGMMA_MAJOR(a, b) ", %" #a ", %" #b
#else
#define WGMMA_SHAPE(n) "m64n" #n "k16.f32.bf16.bf16"
#define WGMMA_MAJOR(a, b) ", %" #a ", %" #b
#endif

// One width: `a`, `b`, `p`, `ta`, `tb` are the numbers of the operands behind D. The sums' signs are 1, 1.
#define WGMMA_FORM(n, a, b, p, ta, tb)                                                                         \
    if constexpr (N == n)                                                                                      \
        asm volatile("{\n\t.reg .pred add;\n\tsetp.ne.b32 add, %" #p ", 0;\n\t"                                \
                     "wgmma.mma_async.sync.aligned." WGMMA_SHAPE(n) " {" WGMMA_TEXT_##n "}, %" #a ", %" #b     \
                     ", add, 1, 1" WGMMA_MAJOR(ta, tb) ";\n\t}"                                                \
                     : WGMMA_SUMS_##n                                                                          \
                     : "l"(a_tile.bits()), "l"(b_tile.bits()), "r"(accumulate), "n"(A_MN_MAJOR), "n"(B_MN_MAJOR));

// D = A B, plus D where `accumulate` is not 0. N: a multiple of 16 up to 256. PTX ISA, 'wgmma.mma_async'.
template <int N, bool A_MN_MAJOR = false, bool B_MN_MAJOR = false>
__device__ __forceinline__ void wgmma(float (&d)[N / 2], MatrixDescriptor a_tile, MatrixDescriptor b_tile,
                                      int accumulate) {
    static_assert(N % 16 == 0 && 16 <= N && N <= 256, "a width that is listed here");
    static_assert(sizeof(Operand) == 2 || !(A_MN_MAJOR || B_MN_MAJOR), "fp8 is K-major");
    WGMMA_FORM(16, 8, 9, 10, 11, 12)
    WGMMA_FORM(32, 16, 17, 18, 19, 20)
    WGMMA_FORM(48, 24, 25, 26, 27, 28)
    WGMMA_FORM(64, 32, 33, 34, 35, 36)
    WGMMA_FORM(80, 40, 41, 42, 43, 44)
    WGMMA_FORM(96, 48, 49, 50, 51, 52)
    WGMMA_FORM(112, 56, 57, 58, 59, 60)
    WGMMA_FORM(128, 64, 65, 66, 67, 68)
    WGMMA_FORM(144, 72, 73, 74, 75, 76)
    WGMMA_FORM(160, 80, 81, 82, 83, 84)
    WGMMA_FORM(176, 88, 89, 90, 91, 92)
    WGMMA_FORM(192, 96, 97, 98, 99, 100)
    WGMMA_FORM(208, 104, 105, 106, 107, 108)
    WGMMA_FORM(224, 112, 113, 114, 115, 116)
    WGMMA_FORM(240, 120, 121, 122, 123, 124)
    WGMMA_FORM(256, 128, 129, 130, 131, 132)
}

#undef WGMMA_EIGHT
#undef WGMMA_SHAPE
#undef WGMMA_MAJOR
#undef WGMMA_FORM
