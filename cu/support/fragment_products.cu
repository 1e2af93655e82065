// Which elements an mma multiplies, and which sum they end up in: products of registers that the caller chose.
//
//   A    A[(i * 32 + lane) * words + w] is register w of a lane in case i; as many words as the instruction takes
//   B    the same for all cases, B[lane * words + w]
//   D    D[(i * 32 + lane) * sums + s] is sum s of a lane, a whole number
//
// One warp. With a single element of A not zero, the sums that are not zero are its row, and what they hold are the
// elements of B at its k. TYPE_... is one of mma.cuh.

#include "mma.cuh"

#if defined(TYPE_BF16) || defined(TYPE_FP16)
#if defined(TYPE_BF16)
#define TYPES "f32.bf16.bf16.f32"
#else
#define TYPES "f32.f16.f16.f32"
#endif

// The 16-bit product with half as many k, which no kernel uses.
__device__ __forceinline__ void mma(Sums& d, const unsigned (&a)[2], const unsigned (&b)[1]) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col." TYPES " {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                 : "+f"(d.element[0]), "+f"(d.element[1]), "+f"(d.element[2]), "+f"(d.element[3])
                 : "r"(a[0]), "r"(a[1]), "r"(b[0]));
}
#endif

template <int A_WORDS, int B_WORDS>
__device__ void multiply(const unsigned* A, const unsigned* B, int* D, int cases) {
    unsigned b[B_WORDS];
    for (int w = 0; w < B_WORDS; ++w) b[w] = B[threadIdx.x * B_WORDS + w];
    for (int i = 0; i < cases; ++i) {
        const int at = i * 32 + threadIdx.x;
        unsigned a[A_WORDS];
        for (int w = 0; w < A_WORDS; ++w) a[w] = A[at * A_WORDS + w];
        Sums d;
        mma(d, a, b);
        for (int s = 0; s < 4; ++s) D[at * 4 + s] = (int)d.at(s);
    }
}

// m16n8k16, m16n8k8 of TF32, m16n8k32 of int8.
extern "C" __global__ void products(const unsigned* A, const unsigned* B, int* D, int cases) {
    multiply<4, 2>(A, B, D, cases);
}

#if defined(TYPE_BF16) || defined(TYPE_FP16)
extern "C" __global__ void products_k8(const unsigned* A, const unsigned* B, int* D, int cases) {
    multiply<2, 1>(A, B, D, cases);
}
#endif

#if defined(TYPE_BF16)
// m16n16k16. The layouts say how wmma.load read memory; registers hold the same elements under all of them.
extern "C" __global__ void products_wmma(const unsigned* A, const unsigned* B, int* D, int cases) {
    unsigned b[4];
    for (int w = 0; w < 4; ++w) b[w] = B[threadIdx.x * 4 + w];
    for (int i = 0; i < cases; ++i) {
        const int at = i * 32 + threadIdx.x;
        const unsigned* a = A + at * 4;
        float d[8] = {};
        asm volatile("wmma.mma.sync.aligned.row.col.m16n16k16.f32.bf16.bf16.f32 {%0, %1, %2, %3, %4, %5, %6, %7}, "
                     "{%8, %9, %10, %11}, {%12, %13, %14, %15}, {%0, %1, %2, %3, %4, %5, %6, %7};"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3]));
        for (int s = 0; s < 8; ++s) D[at * 8 + s] = (int)d[s];
    }
}
#endif
