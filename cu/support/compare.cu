// Counts the elements of C that are further from a trusted result D than their bound, and finds the first.
//
//   bad      |c - d| > 2 u_out |d| + 2 b S,  S = |A||B| of that element; factors given by the caller
//   found    found[0] counts bad elements, found[1] is the smallest index (row * columns + column) of one
//
// The comparison is written so that a NaN on either side is bad.

#if defined(OUT_FP32)
typedef float Element;
__device__ float value(Element e) { return e; }
#elif defined(OUT_BF16)
typedef unsigned short Element;  // a bf16 is the upper half of a float
__device__ float value(Element e) { return __uint_as_float((unsigned)e << 16); }
#elif defined(OUT_FP16)
typedef unsigned short Element;
__device__ float value(Element e) {
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(e));
    return f;
}
#elif defined(OUT_INT32)
typedef int Element;
__device__ double value(Element e) { return e; }  // a float would round it
#endif

extern "C" __global__ void compare(const Element* C, const Element* D, const Element* S,
                                   long long rows, long long columns, long long leading,
                                   float relative, float absolute, unsigned long long* found) {
    unsigned long long bad = 0, first = ~0ull;
    const long long step = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < rows * columns; i += step) {
        const long long at = i / columns * leading + i % columns;
        const auto c = value(C[at]), d = value(D[at]);
        const auto bound = relative * fabs(d) + absolute * value(S[at]);
        if (!(fabs(c - d) <= bound)) {
            ++bad;
            if (i < first) first = i;
        }
    }
    if (bad) {
        atomicAdd(&found[0], bad);
        atomicMin(&found[1], first);
    }
}
