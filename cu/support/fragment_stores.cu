// Where stmatrix stores the elements of each lane's registers. sm_90.
//
//   registers   registers[lane * COUNT + i] is register i of a lane
//   memory      what stood in shared memory after the store, 8 * COUNT rows of 8 elements of 16 bits
//
// One warp. The rows follow each other; lanes that name none repeat the others' rows.

#include "shared.cuh"

// PTX ISA, 'stmatrix'.
template <bool TRANS>
__device__ __forceinline__ void stmatrix(unsigned row, const unsigned (&matrix)[1]) {
    if (TRANS) {
        asm volatile("stmatrix.sync.aligned.m8n8.x1.trans.shared.b16 [%0], {%1};"
                     ::"r"(row), "r"(matrix[0]) : "memory");
    } else {
        asm volatile("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%0], {%1};"
                     ::"r"(row), "r"(matrix[0]) : "memory");
    }
}

template <bool TRANS>
__device__ __forceinline__ void stmatrix(unsigned row, const unsigned (&matrix)[2]) {
    if (TRANS) {
        asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};"
                     ::"r"(row), "r"(matrix[0]), "r"(matrix[1]) : "memory");
    } else {
        asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};"
                     ::"r"(row), "r"(matrix[0]), "r"(matrix[1]) : "memory");
    }
}

template <bool TRANS>
__device__ __forceinline__ void stmatrix(unsigned row, const unsigned (&matrix)[4]) {
    if (TRANS) {
        asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};"
                     ::"r"(row), "r"(matrix[0]), "r"(matrix[1]), "r"(matrix[2]), "r"(matrix[3]) : "memory");
    } else {
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
                     ::"r"(row), "r"(matrix[0]), "r"(matrix[1]), "r"(matrix[2]), "r"(matrix[3]) : "memory");
    }
}

template <int COUNT, bool TRANS>
__device__ void store(const unsigned* registers, uint4* memory) {
    __shared__ uint4 rows[8 * COUNT];
    unsigned held[COUNT];
    for (int i = 0; i < COUNT; ++i) held[i] = registers[threadIdx.x * COUNT + i];
    const int row = threadIdx.x % (8 * COUNT);
    stmatrix<TRANS>(shared_address(&rows[row]), held);
    __syncthreads();  // rows are read by other lanes than those that wrote them
    memory[row] = rows[row];
}

#define STMATRIX_KERNEL(NAME, COUNT, TRANS)                                                       \
    extern "C" __global__ void NAME(const unsigned* registers, uint4* memory) {                   \
        store<COUNT, TRANS>(registers, memory);                                                   \
    }

STMATRIX_KERNEL(stmatrix_x1_stored, 1, false)
STMATRIX_KERNEL(stmatrix_x2_stored, 2, false)
STMATRIX_KERNEL(stmatrix_x4_stored, 4, false)
STMATRIX_KERNEL(stmatrix_x1_trans_stored, 1, true)
STMATRIX_KERNEL(stmatrix_x2_trans_stored, 2, true)
STMATRIX_KERNEL(stmatrix_x4_trans_stored, 4, true)
