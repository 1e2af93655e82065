"""How a kernel must be declared, in C, to take what its catalog entry passes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from lowlevel.catalog.entry import Step, Variant
from lowlevel.dtypes import ELEMENTS
from lowlevel.problems.base import Operand, Problem
from lowlevel.problems.make import default_shape, make_problem

_ELEMENTS = {
    "fp32": "float",
    "fp16": "__half",
    "bf16": "__nv_bfloat16",
    "fp8": "__nv_fp8_e4m3",
    "int8": "signed char",
    "int32": "int",
}
#: What only moves elements takes their bits, by size.
_BITS = {1: "unsigned char", 2: "unsigned short", 4: "unsigned int"}
_SCALARS = {np.dtype(np.int32): "int", np.dtype(np.int64): "long long", np.dtype(np.float32): "float"}


def declared(variant: Variant, step: Step) -> tuple[str, ...]:
    """`const float* A`, `int M` ...: the parameters of one launch, in order."""
    problem = make_problem(variant, default_shape(variant))
    return tuple(_parameter(problem, name) for name in step.params)


def _parameter(problem: Problem, name: str) -> str:
    operands = {operand.name: operand for operand in problem.operands()}
    scalars = problem.scalars()
    if name in operands:
        return _pointer(problem, operands[name])
    if name in scalars:
        return f"{_SCALARS.get(scalars[name].dtype, str(scalars[name].dtype))} {name}"
    if (copied := name.removeprefix("packed_")) in operands and copied != name:
        return _pointer(problem, replace(operands[copied], name=name, output=True))
    if name.startswith(("rows_", "columns_", "ld_packed_")):
        return f"int {name}"
    if name.startswith("map_"):
        return f"const __grid_constant__ CUtensorMap {name}"
    if name == "epilogue":
        return f"Epilogue {name}"  # cu/include/epilogue.cuh
    if name == "gpc_of_sm":
        return f"const unsigned char* {name}"
    return f"void* {name}"


def _pointer(problem: Problem, operand: Operand) -> str:
    bits = problem.type.unit == "none"
    type_ = _BITS.get(ELEMENTS[operand.element].bytes) if bits else _ELEMENTS.get(operand.element)
    type_ = type_ or "void"
    return f"{type_}* {operand.name}" if operand.output else f"const {type_}* {operand.name}"
