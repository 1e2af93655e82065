// Epilogues: what happens to a finished sum on its way to C, while it is still in a register.
//
//   none       alpha acc
//   bias       alpha acc + bias[n]
//   bias_relu  max(0, alpha acc + bias[n])
//   bias_silu  x / (1 + exp(-x)),  x = alpha acc + bias[n]
//   residual   alpha acc + residual[m][n]
//
// The kernel's last parameter is one of these structs, 24 bytes; pointers that an epilogue does not use are null.
// What is added has C's type; the arithmetic is fp32.
// alpha is 1 here, as in the library's calls, but the compiler does not know it.
#pragma once

#include "element.cuh"

struct Epilogue {
    float alpha;
    int ld_residual;  // elements between rows of residual
    const Output* bias;
    const Output* residual;

    // The value to store at C[m][n].
    __device__ __forceinline__ float operator()(float acc, int m, int n) const {
        const float x = alpha * acc;
#if defined(EPILOGUE_BIAS)
        return x + to_float(bias[n]);
#elif defined(EPILOGUE_BIAS_RELU)
        return fmaxf(x + to_float(bias[n]), 0.0f);
#elif defined(EPILOGUE_BIAS_SILU)
        const float y = x + to_float(bias[n]);
        return y / (1.0f + __expf(-y));
#elif defined(EPILOGUE_RESIDUAL)
        return x + to_float(residual[(long long)m * ld_residual + n]);
#else
        return x;
#endif
    }
};
