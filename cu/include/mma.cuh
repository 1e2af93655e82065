// mma.sync: D = A B + D on a tensor core, by the 32 lanes of a warp together. sm_80.
//
// D is 16 x 8. A is 16 rows and B 8 columns of 32 bytes along k: 16 elements of 16 bits, 8 of TF32, 32 of int8. Seen in
// words of 4 bytes, the types share one map. With r = lane / 4 and w = lane % 4:
//
//   A   a[0] row r, word w     a[1] row r + 8, word w     a[2] row r, word w + 4     a[3] row r + 8, word w + 4
//   B   b[0] column r, word w                             b[1] column r, word w + 4
//   D   0, 1: row r, columns 2 w, 2 w + 1                 2, 3: row r + 8, columns 2 w, 2 w + 1
//
// which is how ldmatrix deals out four matrices of A, top left, bottom left, top right, bottom right, and two of B.
// PTX ISA, 'Matrix Fragments for mma.m16n8k16 with floating point type', '... mma.m16n8k8', '... mma.m16n8k32'.
#pragma once

#include "element.cuh"

constexpr int MMA_M = 16, MMA_N = 8, MMA_K = 32 / sizeof(Operand);

// A lane's part of D.
struct Sums {
#if defined(TYPE_FP16_ACC16)
    unsigned pair[2] = {};  // elements 0, 1 and 2, 3, fp16
    __device__ __forceinline__ float at(int i) const {
        return fp16_to_float((unsigned short)(pair[i / 2] >> i % 2 * 16));
    }
#else
    Sum element[4] = {};
    __device__ __forceinline__ Sum at(int i) const { return element[i]; }
#endif
};

__device__ __forceinline__ void mma(Sums& d, const unsigned (&a)[4], const unsigned (&b)[2]) {
#if defined(TYPE_BF16)
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d.element[0]), "+f"(d.element[1]), "+f"(d.element[2]), "+f"(d.element[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#elif defined(TYPE_FP16)
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d.element[0]), "+f"(d.element[1]), "+f"(d.element[2]), "+f"(d.element[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#elif defined(TYPE_FP16_ACC16)
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%0, %1};"
                 : "+r"(d.pair[0]), "+r"(d.pair[1])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#elif defined(TYPE_TF32)
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d.element[0]), "+f"(d.element[1]), "+f"(d.element[2]), "+f"(d.element[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#elif defined(TYPE_INT8)
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+r"(d.element[0]), "+r"(d.element[1]), "+r"(d.element[2]), "+r"(d.element[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}
