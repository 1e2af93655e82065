"""Numbers from cublas_api.h, cublasLt.h and library_types.h (CUDA 12 and 13)."""

#: Of each device's handles. NVIDIA recommends 32 MiB for Hopper; more does not lose, and split-K kernels use it.
WORKSPACE_BYTES = 64 << 20

OP_N, OP_T = 0, 1
GEMM_DEFAULT = -1
MATH_DEFAULT, MATH_PEDANTIC = 0, 2
#: CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION, added to either.
MATH_FULL_PRECISION_REDUCTION = 16

#: cudaDataType, by element.
DATA_TYPE = {"fp32": 0, "fp16": 2, "int8": 3, "int32": 10, "bf16": 14, "fp8": 28}

#: cublasComputeType_t, by the name that a row's configuration shows.
COMPUTE = {"16F": 64, "32F": 68, "32I": 72, "TF32": 77}

#: cublasLtMatmulDescAttributes_t
DESC_TRANSA, DESC_TRANSB = 3, 4
DESC_EPILOGUE, DESC_BIAS_POINTER = 7, 8
DESC_A_SCALE_POINTER, DESC_B_SCALE_POINTER, DESC_FAST_ACCUM = 17, 18, 25

#: cublasLtEpilogue_t, by the epilogue's name here. A residual needs none: it is the C of D = alpha A B + beta C.
EPILOGUE = {"none": 1, "bias": 4, "bias_relu": 6, "residual": 1}

#: cublasLtMatmulPreferenceAttributes_t
PREF_MAX_WORKSPACE_BYTES = 1
PREF_REDUCTION_SCHEMES = 3
#: In place and in the computation's type, of cublasLtReductionScheme_t; left out: in the output's type.
FULL_PRECISION_SCHEMES = 1 | 2
PREF_MIN_ALIGNMENT = (5, 6, 7, 8)  # of A, B, C, D, in bytes

NOT_SUPPORTED = 15

#: cublasStatus_t: its name, and what it usually means here.
NOT_SUPPORTED = 15
STATUS = {
    1: ("CUBLAS_STATUS_NOT_INITIALIZED", "the GPU or its driver cannot be used, or memory is short"),
    3: ("CUBLAS_STATUS_ALLOC_FAILED", "device memory is short: use a smaller shape"),
    7: ("CUBLAS_STATUS_INVALID_VALUE", "a size or leading dimension is out of range"),
    8: ("CUBLAS_STATUS_ARCH_MISMATCH", "this GPU has no such type"),
    11: ("CUBLAS_STATUS_MAPPING_ERROR", "device memory could not be read"),
    13: ("CUBLAS_STATUS_EXECUTION_FAILED", "a kernel failed: an earlier one may have corrupted the context"),
    14: ("CUBLAS_STATUS_INTERNAL_ERROR", "cuBLAS failed inside: try the shape alone, or another cuBLAS release"),
    NOT_SUPPORTED: ("CUBLAS_STATUS_NOT_SUPPORTED", "cuBLAS has no kernel for this type, layout and shape on this GPU"),
    16: ("CUBLAS_STATUS_LICENSE_ERROR", "cuBLAS found no licence"),
}
