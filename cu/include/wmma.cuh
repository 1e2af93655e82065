// WMMA: 16 x 16 fragments, loaded, multiplied and stored by the 32 lanes of a warp together. sm_80 for bf16.
//
// Which lane holds which element is the compiler's secret, so nothing but these instructions can fill a fragment, or
// say what is in it. A fragment starts at a multiple of 32 bytes; the stride between rows, in elements, is a multiple
// of 16 bytes. PTX ISA, 'Warp Level Matrix Multiply-Accumulate Operations: wmma'.
#pragma once

#include "element.cuh"

struct WmmaSums {
    float word[8] = {};
};

#if defined(TYPE_BF16)

struct WmmaOperand {
    unsigned word[4];
};

// A, 16 rows of 16 along k. PTX ISA, 'wmma.load'.
__device__ __forceinline__ void wmma_load_a(WmmaOperand& a, unsigned shared, int stride) {
    asm volatile("wmma.load.a.sync.aligned.row.m16n16k16.shared.bf16 {%0, %1, %2, %3}, [%4], %5;"
                 : "=r"(a.word[0]), "=r"(a.word[1]), "=r"(a.word[2]), "=r"(a.word[3])
                 : "r"(shared), "r"(stride)
                 : "memory");
}

// B, 16 columns of 16 along k: 'col', since each column lies there like a row of A.
__device__ __forceinline__ void wmma_load_b(WmmaOperand& b, unsigned shared, int stride) {
    asm volatile("wmma.load.b.sync.aligned.col.m16n16k16.shared.bf16 {%0, %1, %2, %3}, [%4], %5;"
                 : "=r"(b.word[0]), "=r"(b.word[1]), "=r"(b.word[2]), "=r"(b.word[3])
                 : "r"(shared), "r"(stride)
                 : "memory");
}

// D = A B + D. PTX ISA, 'wmma.mma'.
__device__ __forceinline__ void wmma_mma(WmmaSums& d, const WmmaOperand& a, const WmmaOperand& b) {
    asm volatile("wmma.mma.sync.aligned.row.col.m16n16k16.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9, %10, %11}, {%12, %13, %14, %15}, "
                 "{%0, %1, %2, %3, %4, %5, %6, %7};"
                 : "+f"(d.word[0]), "+f"(d.word[1]), "+f"(d.word[2]), "+f"(d.word[3]), "+f"(d.word[4]),
                   "+f"(d.word[5]), "+f"(d.word[6]), "+f"(d.word[7])
                 : "r"(a.word[0]), "r"(a.word[1]), "r"(a.word[2]), "r"(a.word[3]), "r"(b.word[0]), "r"(b.word[1]),
                   "r"(b.word[2]), "r"(b.word[3]));
}

#elif defined(TYPE_FP16)

// Twice what 16 x 16 elements need: fp16 fragments date from sm_70, whose lanes held each element in two places.
struct WmmaOperand {
    unsigned word[8];
};

__device__ __forceinline__ void wmma_load_a(WmmaOperand& a, unsigned shared, int stride) {
    asm volatile("wmma.load.a.sync.aligned.row.m16n16k16.shared.f16 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
                 : "=r"(a.word[0]), "=r"(a.word[1]), "=r"(a.word[2]), "=r"(a.word[3]), "=r"(a.word[4]),
                   "=r"(a.word[5]), "=r"(a.word[6]), "=r"(a.word[7])
                 : "r"(shared), "r"(stride)
                 : "memory");
}

__device__ __forceinline__ void wmma_load_b(WmmaOperand& b, unsigned shared, int stride) {
    asm volatile("wmma.load.b.sync.aligned.col.m16n16k16.shared.f16 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
                 : "=r"(b.word[0]), "=r"(b.word[1]), "=r"(b.word[2]), "=r"(b.word[3]), "=r"(b.word[4]),
                   "=r"(b.word[5]), "=r"(b.word[6]), "=r"(b.word[7])
                 : "r"(shared), "r"(stride)
                 : "memory");
}

__device__ __forceinline__ void wmma_mma(WmmaSums& d, const WmmaOperand& a, const WmmaOperand& b) {
    asm volatile("wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9, %10, %11, %12, %13, %14, %15}, "
                 "{%16, %17, %18, %19, %20, %21, %22, %23}, {%0, %1, %2, %3, %4, %5, %6, %7};"
                 : "+f"(d.word[0]), "+f"(d.word[1]), "+f"(d.word[2]), "+f"(d.word[3]), "+f"(d.word[4]),
                   "+f"(d.word[5]), "+f"(d.word[6]), "+f"(d.word[7])
                 : "r"(a.word[0]), "r"(a.word[1]), "r"(a.word[2]), "r"(a.word[3]), "r"(a.word[4]), "r"(a.word[5]),
                   "r"(a.word[6]), "r"(a.word[7]), "r"(b.word[0]), "r"(b.word[1]), "r"(b.word[2]), "r"(b.word[3]),
                   "r"(b.word[4]), "r"(b.word[5]), "r"(b.word[6]), "r"(b.word[7]));
}

#endif

// D to 16 rows of 16 floats. PTX ISA, 'wmma.store'.
__device__ __forceinline__ void wmma_store(unsigned shared, const WmmaSums& d, int stride) {
    asm volatile("wmma.store.d.sync.aligned.row.m16n16k16.shared.f32 [%0], {%1, %2, %3, %4, %5, %6, %7, %8}, %9;" ::
                     "r"(shared), "f"(d.word[0]), "f"(d.word[1]), "f"(d.word[2]), "f"(d.word[3]), "f"(d.word[4]),
                 "f"(d.word[5]), "f"(d.word[6]), "f"(d.word[7]), "r"(stride)
                 : "memory");
}
