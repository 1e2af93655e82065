"""A row-major product in the terms of a column-major library, and the products that the library does not take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lowlevel.cublas.constants import EPILOGUE, OP_N, OP_T
from lowlevel.dtypes import Type
from lowlevel.problems.gemm import Gemm

_INT_MAX = 2**31 - 1


@dataclass(frozen=True)
class GemmArguments:
    """C^T = op(first) op(second) as cuBLAS is told it: `first` and `second` name our operands."""

    transa: int
    transb: int
    m: int
    n: int
    k: int
    first: str
    lda: int
    second: str
    ldb: int
    ldc: int


def column_major(problem: Gemm) -> GemmArguments:
    """Row-major memory read column by column is the transpose, so C = A B becomes C^T = B^T A^T: the operands swap
    places, and an operand that is stored as the formula has it needs no transposition."""
    return GemmArguments(
        transa=OP_N if problem.layout[1] == "N" else OP_T,
        transb=OP_N if problem.layout[0] == "N" else OP_T,
        m=problem.n,
        n=problem.m,
        k=problem.k,
        first="B",
        lda=problem.ldb,
        second="A",
        ldb=problem.lda,
        ldc=problem.ldc,
    )


def compute_name(type_: Type) -> str:
    """The cublasComputeType_t of a type, a key of `constants.COMPUTE`: never TF32 for fp32."""
    if type_.dtype == "tf32":
        return "TF32"
    return {"fp32": "32F", "fp16": "16F", "int32": "32I"}[type_.accumulate]


def gemm_ex_refusal(problem: Gemm) -> str | None:
    """Why cublasSgemm or cublasGemmEx does not take a problem, in one line, or None."""
    if problem.type.dtype == "fp8":
        return "cublasGemmEx has no fp8: cublasLtMatmul has"
    if problem.epilogue != "none":
        return f"cublasSgemm and cublasGemmEx have no epilogue, asked is '{problem.epilogue}'"
    return _common_refusal(problem)


def separate_refusal(problem: Gemm) -> str | None:
    """Why such a call and an elementwise kernel after it do not compute a problem, in one line, or None.

    A 16-bit C would be rounded before the epilogue and again after it: where the addend cancels the product, that
    leaves the bound of one rounding.
    """
    if refusal := gemm_ex_refusal(problem.product):
        return refusal
    if problem.type.output != "fp32":
        return f"a separate '{problem.epilogue}' would read an already rounded C: only fp32 outputs keep to the bound"
    return None


def lt_refusal(problem: Gemm) -> str | None:
    """Why cublasLtMatmul does not take a problem, in one line, or None.

    Epilogues: cublasLtEpilogue_t has bias with and without ReLU, int8 has none of them (cuBLAS manual,
    'cublasLtMatmul()', the table of types); a residual is the product's C operand, which every type has.
    fp8: the 'TN' format only, and the sizes that run along memory multiples of 16 bytes (cuBLAS manual, 'Tensor Core
    Usage'). M runs along no operand's memory in NT, so it is free.
    """
    if refusal := _common_refusal(problem):
        return refusal
    if problem.epilogue not in EPILOGUE:
        return f"cuBLASLt has no epilogue '{problem.epilogue}'"
    if problem.type.dtype == "int8" and EPILOGUE[problem.epilogue] != EPILOGUE["none"]:
        return f"cuBLASLt has no epilogue '{problem.epilogue}' for int8"
    if problem.type.dtype != "fp8":
        return None
    if problem.layout != "NT":
        return f"cuBLASLt takes fp8 in layout NT only, not {problem.layout}"
    return _misaligned(problem, {"k": 16, "lda": 16, "ldb": 16, "n": 8, "ldc": 8}, "cuBLASLt takes fp8")


def _common_refusal(problem: Gemm) -> str | None:
    for name, value in problem.dimensions.items():
        if value > _INT_MAX:
            return f"cuBLAS takes 32-bit sizes: {name}={value} is above {_INT_MAX}"
    if problem.type.dtype == "int8":
        return _misaligned(problem, dict.fromkeys(("n", "k", "lda", "ldb", "ldc"), 4), "cuBLAS takes int8")
    return None


def _misaligned(problem: Gemm, multiples: Mapping[str, int], what: str) -> str | None:
    for name, multiple in multiples.items():
        if (value := problem.dimensions[name]) % multiple:
            return f"{what} where {name} is a multiple of {multiple}, not {name}={value}"
    return None
