// Epilogues: what happens to a finished sum on its way to C, while it is still in a register.
//
//   none       alpha acc
//   bias       alpha acc + bias[n]
//   bias_relu  max(0, alpha acc + bias[n])
//   bias_silu  x / (1 + exp(-x)),  x = alpha acc + bias[n]
//   residual   alpha acc + residual[m][n]
//
// The kernel's last parameter is one of these structs, 24 bytes; pointers that an epilogue does not use are null.
// What is added has C's type; the arithmetic is fp32. silu's quotient is the fast one, within 2 ulp, and 0 where the
// divisor is above 2^126: x is below -87 there, and the quotient nearer to 0 than 2^-119.
// alpha is 1 here, as in the library's calls, but the compiler does not know it.
#pragma once

#include "element.cuh"

struct Epilogue {
    float alpha;
    int ld_residual;  // elements between rows of residual
    const Output* bias;
    const Output* residual;

#if defined(EPILOGUE_RESIDUAL)
    static constexpr bool ADDS = true;
    // The row of what is added to row m of C.
    __device__ __forceinline__ const Output* addends(int m) const { return residual + (long long)m * ld_residual; }
#elif defined(EPILOGUE_BIAS) || defined(EPILOGUE_BIAS_RELU) || defined(EPILOGUE_BIAS_SILU)
    static constexpr bool ADDS = true;
    __device__ __forceinline__ const Output* addends(int) const { return bias; }
#else
    static constexpr bool ADDS = false;
    __device__ __forceinline__ const Output* addends(int) const { return nullptr; }
#endif

    // Whether every such row starts at a multiple of 16 bytes.
    __device__ __forceinline__ bool aligned_to_16() const {
        unsigned long long bits = reinterpret_cast<unsigned long long>(addends(0));
#if defined(EPILOGUE_RESIDUAL)
        bits |= ld_residual * sizeof(Output);
#endif
        return bits % 16 == 0;
    }

    // The value to store, of a sum and what is added to it.
    __device__ __forceinline__ float finish(float acc, float addend) const {
        const float x = alpha * acc;
#if defined(EPILOGUE_BIAS) || defined(EPILOGUE_RESIDUAL)
        return x + addend;
#elif defined(EPILOGUE_BIAS_RELU)
        return fmaxf(x + addend, 0.0f);
#elif defined(EPILOGUE_BIAS_SILU)
        const float y = x + addend;
        return __fdividef(y, 1.0f + __expf(-y));
#else
        return x;
#endif
    }

    // The value to store at C[m][n].
    __device__ __forceinline__ float operator()(float acc, int m, int n) const {
        return finish(acc, ADDS ? to_float(addends(m)[n]) : 0.0f);
    }
};
