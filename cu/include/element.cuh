// The types of a kernel, from the catalog's TYPE_...: what its operands and its results are in memory.
//
//   Operand   an element of A and B, as bits where arithmetic on it is not C++'s
//   Output    an element of C, bias and residual
//   Sum       what products are added up in, one element
#pragma once

#if defined(TYPE_BF16) || defined(TYPE_FP16)
typedef unsigned short Operand;
typedef unsigned short Output;
typedef float Sum;
#elif defined(TYPE_FP16_ACC16)
typedef unsigned short Operand;
typedef unsigned short Output;
typedef float Sum;  // after the last addition: sums themselves are fp16 in pairs, mma.cuh
#elif defined(TYPE_FP8)
typedef unsigned char Operand;  // e4m3
typedef unsigned short Output;  // bf16
typedef float Sum;
#elif defined(TYPE_INT8)
typedef signed char Operand;
typedef int Output;
typedef int Sum;
#else
typedef float Operand;
typedef float Output;
typedef float Sum;
#endif

// Two sums as two neighbouring 16-bit elements, rounded to nearest even, `low` at the lower address. PTX ISA, 'cvt':
// the first source is the upper half.
__device__ __forceinline__ unsigned pack_bf16(float low, float high) {
    unsigned packed;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
}

__device__ __forceinline__ unsigned pack_fp16(float low, float high) {
    unsigned packed;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
}

// A bf16 is the upper half of the fp32 of the same value.
__device__ __forceinline__ float bf16_to_float(unsigned short bits) { return __uint_as_float((unsigned)bits << 16); }

__device__ __forceinline__ float fp16_to_float(unsigned short bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}

// An element of C, bias or residual as a number, and the reverse.
__device__ __forceinline__ float to_float(Output element) {
#if defined(TYPE_BF16) || defined(TYPE_FP8)
    return bf16_to_float(element);
#elif defined(TYPE_FP16) || defined(TYPE_FP16_ACC16)
    return fp16_to_float(element);
#else
    return element;
#endif
}

__device__ __forceinline__ Output to_output(Sum value) {
#if defined(TYPE_BF16) || defined(TYPE_FP8)
    return (Output)pack_bf16(value, 0.0f);
#elif defined(TYPE_FP16) || defined(TYPE_FP16_ACC16)
    return (Output)pack_fp16(value, 0.0f);
#else
    return value;
#endif
}

#if defined(TYPE_BF16) || defined(TYPE_FP8) || defined(TYPE_FP16) || defined(TYPE_FP16_ACC16)
// Two neighbours of a row of C.
__device__ __forceinline__ unsigned pack_output(float low, float high) {
#if defined(TYPE_BF16) || defined(TYPE_FP8)
    return pack_bf16(low, high);
#else
    return pack_fp16(low, high);
#endif
}
#endif
