// What ldmatrix and wmma.load deal out: each lane's registers, of a matrix whose elements are their own numbers.
//
//   elements    the matrix in memory: 16-bit elements, or 32-bit ones for wmma's sums
//   registers   registers[lane * COUNT + i] is register i of a lane
//
// One warp. The matrices of ldmatrix are read from shared memory, 16 bytes a row; those of wmma 16 elements a row (or
// column) from global memory.

#include "ldmatrix.cuh"
#include "shared.cuh"

// ldmatrix.cuh has only what kernels use.
__device__ __forceinline__ void ldmatrix_x1(unsigned (&matrix)[1], unsigned row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(matrix[0]) : "r"(row) : "memory");
}

__device__ __forceinline__ void ldmatrix_x1_trans(unsigned (&matrix)[1], unsigned row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];" : "=r"(matrix[0]) : "r"(row) : "memory");
}

template <int COUNT>
__device__ void keep(const unsigned (&held)[COUNT], unsigned* registers) {
    for (int i = 0; i < COUNT; ++i) registers[threadIdx.x * COUNT + i] = held[i];
}

// The shared address of the row that this lane names. Lanes that name none repeat the others' rows.
template <int COUNT>
__device__ unsigned named_row(const uint4* rows) {
    __shared__ uint4 matrices[8 * COUNT];
    const int row = threadIdx.x % (8 * COUNT);
    matrices[row] = rows[row];
    __syncthreads();  // rows are read by other lanes than those that wrote them
    return shared_address(&matrices[row]);
}

#define LDMATRIX_KERNEL(COUNT, LOAD)                                                              \
    extern "C" __global__ void LOAD##_dealt(const uint4* elements, unsigned* registers) {         \
        unsigned held[COUNT];                                                                     \
        LOAD(held, named_row<COUNT>(elements));                                                   \
        keep(held, registers);                                                                    \
    }

LDMATRIX_KERNEL(1, ldmatrix_x1)
LDMATRIX_KERNEL(2, ldmatrix_x2)
LDMATRIX_KERNEL(4, ldmatrix_x4)
LDMATRIX_KERNEL(1, ldmatrix_x1_trans)
LDMATRIX_KERNEL(2, ldmatrix_x2_trans)
LDMATRIX_KERNEL(4, ldmatrix_x4_trans)

// PTX ISA, 'wmma.load'. Four registers of bf16 or of fp16 sums.
#define WMMA_KERNEL_4(NAME, LOAD)                                                                 \
    extern "C" __global__ void NAME(const void* elements, unsigned* registers) {                  \
        unsigned held[4];                                                                         \
        asm volatile(LOAD " {%0, %1, %2, %3}, [%4], 16;"                                          \
                     : "=r"(held[0]), "=r"(held[1]), "=r"(held[2]), "=r"(held[3])                 \
                     : "l"(elements)                                                              \
                     : "memory");                                                                 \
        keep(held, registers);                                                                    \
    }

// Eight registers: of fp16, or, as bits of the same size, of fp32 sums.
#define WMMA_KERNEL_8(NAME, LOAD, AS, BITS)                                                       \
    extern "C" __global__ void NAME(const void* elements, unsigned* registers) {                  \
        AS loaded[8];                                                                             \
        asm volatile(LOAD " {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], 16;"                          \
                     : BITS(loaded[0]), BITS(loaded[1]), BITS(loaded[2]), BITS(loaded[3]),        \
                       BITS(loaded[4]), BITS(loaded[5]), BITS(loaded[6]), BITS(loaded[7])         \
                     : "l"(elements)                                                              \
                     : "memory");                                                                 \
        unsigned held[8];                                                                         \
        for (int i = 0; i < 8; ++i) memcpy(&held[i], &loaded[i], 4);                              \
        keep(held, registers);                                                                    \
    }

WMMA_KERNEL_4(wmma_a_bf16_row_dealt, "wmma.load.a.sync.aligned.row.m16n16k16.bf16")
WMMA_KERNEL_4(wmma_a_bf16_col_dealt, "wmma.load.a.sync.aligned.col.m16n16k16.bf16")
WMMA_KERNEL_4(wmma_b_bf16_row_dealt, "wmma.load.b.sync.aligned.row.m16n16k16.bf16")
WMMA_KERNEL_4(wmma_b_bf16_col_dealt, "wmma.load.b.sync.aligned.col.m16n16k16.bf16")
WMMA_KERNEL_8(wmma_a_f16_row_dealt, "wmma.load.a.sync.aligned.row.m16n16k16.f16", unsigned, "=r")
WMMA_KERNEL_8(wmma_a_f16_col_dealt, "wmma.load.a.sync.aligned.col.m16n16k16.f16", unsigned, "=r")
WMMA_KERNEL_8(wmma_b_f16_row_dealt, "wmma.load.b.sync.aligned.row.m16n16k16.f16", unsigned, "=r")
WMMA_KERNEL_8(wmma_b_f16_col_dealt, "wmma.load.b.sync.aligned.col.m16n16k16.f16", unsigned, "=r")
WMMA_KERNEL_8(wmma_c_f32_row_dealt, "wmma.load.c.sync.aligned.row.m16n16k16.f32", float, "=f")
WMMA_KERNEL_8(wmma_c_f32_col_dealt, "wmma.load.c.sync.aligned.col.m16n16k16.f32", float, "=f")
WMMA_KERNEL_4(wmma_c_f16_row_dealt, "wmma.load.c.sync.aligned.row.m16n16k16.f16")
WMMA_KERNEL_4(wmma_c_f16_col_dealt, "wmma.load.c.sync.aligned.col.m16n16k16.f16")
