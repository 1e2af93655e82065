// stmatrix: 8 x 8 matrices of 16-bit elements from registers to shared memory, ldmatrix's reverse. sm_90 and newer.
//
// A matrix is 8 rows of 16 bytes, anywhere in shared memory, each aligned to 16 bytes. Lanes 8 i .. 8 i + 7 name the
// rows of matrix i. Lane l's register of a matrix holds row l / 4, elements 2 (l % 4) and 2 (l % 4) + 1: the fragments
// of D of mma.sync and wgmma, once they are packed in pairs.
#pragma once

// PTX ISA, 'stmatrix'.
__device__ __forceinline__ void stmatrix_x4(unsigned row, unsigned matrix0, unsigned matrix1, unsigned matrix2,
                                            unsigned matrix3) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
                 ::"r"(row), "r"(matrix0), "r"(matrix1), "r"(matrix2), "r"(matrix3)
                 : "memory");
}
