// ldmatrix: 8 x 8 matrices of 16-bit elements from shared memory to the registers that mma.sync wants. sm_75.
//
// A matrix is 8 rows of 16 bytes, anywhere in shared memory, each aligned to 16 bytes. Lanes 8 i .. 8 i + 7 name the
// rows of matrix i. Lane l gets, of each matrix, the 4 bytes at row l / 4, bytes 4 (l % 4) .. + 3: two neighbouring
// elements of a row, or, transposed, of a column (16-bit elements only). What the bytes mean is mma's affair: four
// words of TF32 or sixteen int8 a row are moved just the same.
//
// Each matrix is one access of shared memory; it takes one pass when its 8 rows lie in 8 different groups of 4 banks.
#pragma once

// PTX ISA, 'ldmatrix'.
__device__ __forceinline__ void ldmatrix_x2(unsigned (&matrix)[2], unsigned row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(matrix[0]), "=r"(matrix[1])
                 : "r"(row)
                 : "memory");
}

__device__ __forceinline__ void ldmatrix_x4(unsigned (&matrix)[4], unsigned row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(matrix[0]), "=r"(matrix[1]), "=r"(matrix[2]), "=r"(matrix[3])
                 : "r"(row)
                 : "memory");
}

// Each matrix transposed on its way.
__device__ __forceinline__ void ldmatrix_x2_trans(unsigned (&matrix)[2], unsigned row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(matrix[0]), "=r"(matrix[1])
                 : "r"(row)
                 : "memory");
}

__device__ __forceinline__ void ldmatrix_x4_trans(unsigned (&matrix)[4], unsigned row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(matrix[0]), "=r"(matrix[1]), "=r"(matrix[2]), "=r"(matrix[3])
                 : "r"(row)
                 : "memory");
}
