"""launch.json: everything that someone else's code must know to launch a kernel."""

from __future__ import annotations

import numpy as np

from lowlevel.catalog.entry import Variant
from lowlevel.contender import NOTHING, KernelContender
from lowlevel.errors import UsageError
from lowlevel.export import example
from lowlevel.export.paper import Paper, PaperBuffer, PaperMap, Written, address_of
from lowlevel.hardware import Limits
from lowlevel.problems.base import Operand, Problem
from lowlevel.toolchain.arch import runs_on
from lowlevel.toolchain.binary import Binary

SCHEMA = 1
CUBIN, PTX = "kernel.cubin", "kernel.ptx"
#: What CUtensorMapDataType calls our elements; fp8 is bytes to the copy engine.
MAP_TYPES = {
    "int8": "UINT8",
    "fp8": "UINT8",
    "int32": "INT32",
    "fp16": "FLOAT16",
    "fp32": "FLOAT32",
    "bf16": "BFLOAT16",
}
_MAP = "CU_TENSOR_MAP_"


def describe(variant: Variant, problem: Problem, binary: Binary, limits: Limits) -> dict:
    """The content of launch.json. `limits` are those of the GPU that the grid is made for.

    Raises UsageError, with the rule, for a problem that the kernel does not take or a launch beyond the limits.
    """
    if not runs_on(binary.arch, limits.capability):
        raise UsageError(f"code for {binary.arch} cannot run on {limits.name} ({limits.arch})")
    paper = Paper(binary, limits)
    KernelContender(variant, paper).bind(paper, problem, paper.operands(problem))
    operands = {o.name: o for o in problem.operands()}
    steps = zip(variant.kernel.steps_for(problem), paper.launches, strict=True)
    launches = [_launch(step.params, written, operands) for step, written in steps]
    return {
        "schema": SCHEMA,
        "kernel": variant.name,
        "operation": problem.operation,
        "layout": problem.layout,
        "dimensions": dict(problem.dimensions),
        "cubin": CUBIN,
        "ptx": PTX,
        "arch": binary.arch,
        "grid_made_for": {"gpu": limits.name, "sms": limits.sms},
        "operands": [_operand(o) for o in operands.values()],
        "workspace_bytes": max(launch["workspace_bytes"] for launch in launches),
        "launches": launches,
        "example": example.described(problem),
    }


def _operand(operand: Operand) -> dict:
    """Row-major: element [row][column] lies `row * leading_dimension + column` elements from the start."""
    return {
        "name": operand.name,
        "output": operand.output,
        "element": operand.element,
        "element_bytes": operand.dtype.itemsize,
        "shape": list(operand.shape),
        "leading_dimension": operand.leading,
        "bytes": operand.nbytes,
        "alignment": 16,
        "bits": None if operand.output else [f"{b:#x}" for b in example.encoded(operand)],
    }


def _launch(names: tuple[str, ...], written: Written, operands: dict[str, Operand]) -> dict:
    """One launch; grid in blocks, block in threads, also in a cluster launch. Parameters whose operand is null lie in
    the call's workspace, from byte `offset` on; workspace_bytes is how far this launch's pointers reach in it. A
    parameter that is `zeros` is a tensor map or a pointer that the kernel does not use."""
    shape = written.shape
    parameters = [
        {"name": name, "size": declared.size, **_parameter(argument, operands)}
        for name, declared, argument in zip(names, written.entry.parameters, written.arguments, strict=True)
    ]
    return {
        "entry": written.entry.name,
        "grid": [int(n) for n in shape.grid],
        "block": [int(n) for n in shape.block],
        "dynamic_shared_bytes": shape.shared,
        "static_shared_bytes": written.entry.resources.shared,
        "registers": written.entry.resources.registers,
        "cluster": None if shape.cluster is None else [int(n) for n in shape.cluster],
        "cooperative": shape.cooperative,
        "programmatic": shape.programmatic,
        "workspace_bytes": max((p["offset"] + p["bytes"] for p in parameters if _in_workspace(p)), default=0),
        "parameters": parameters,
    }


def _in_workspace(parameter: dict) -> bool:
    return parameter["kind"] == "pointer" and parameter["operand"] is None


def _parameter(argument: object, operands: dict[str, Operand]) -> dict:
    if isinstance(argument, PaperMap):
        where = {"operand": argument.operand} if argument.operand else {"operand": None, "offset": argument.offset}
        return {"kind": "tensor_map", **where, **_map(argument)}
    if isinstance(argument, PaperBuffer) and not argument.operand:
        where = {"operand": None, "offset": argument.offset, "bytes": argument.nbytes}
        return {"kind": "pointer", **where, "zeroed_before_the_first_launch": True}
    if isinstance(argument, PaperBuffer):
        found = _operand(operands[argument.operand])
        told = ("output", "element", "shape", "leading_dimension", "bytes")
        return {"kind": "pointer", "operand": argument.operand, **{key: found[key] for key in told}}
    if argument is NOTHING or (isinstance(argument, np.void) and not argument.dtype.names):
        return {"kind": "zeros"}
    if isinstance(argument, np.void):
        fields = argument.dtype.names
        return {"kind": "struct", "fields": [_field(name, argument[name], operands) for name in fields]}
    if isinstance(argument, np.generic):
        return {"kind": argument.dtype.name, "value": argument.item()}
    raise UsageError(f"cannot export a parameter of type {type(argument).__name__}")


def _field(name: str, value: np.generic, operands: dict[str, Operand]) -> dict:
    """A member of a struct, in order. 64-bit members are addresses: of an operand, or null."""
    if value.dtype != np.uint64:
        return {"name": name, "kind": value.dtype.name, "value": value.item()}
    pointed = [operand for index, operand in enumerate(operands) if address_of(index) == value]
    return {"name": name, "kind": "pointer", "operand": pointed[0] if pointed else None}


def _map(argument: PaperMap) -> dict:
    """The arguments of cuTensorMapEncodeTiled by their names, innermost dimension first; strides in bytes."""
    spec = argument.spec
    swizzle = "NONE" if spec.swizzle == "none" else spec.swizzle
    promotion = f"L2_{spec.l2_promotion}B" if spec.l2_promotion else "NONE"
    return {
        "tensorDataType": f"{_MAP}DATA_TYPE_{MAP_TYPES[spec.element]}",
        "tensorRank": len(spec.shape),
        "globalDim": [int(n) for n in reversed(spec.shape)],
        "globalStrides": [int(n) for n in reversed(spec.strides)],
        "boxDim": [int(n) for n in reversed(spec.box)],
        "elementStrides": [1] * len(spec.shape),
        "interleave": f"{_MAP}INTERLEAVE_NONE",
        "swizzle": f"{_MAP}SWIZZLE_{swizzle}",
        "l2Promotion": f"{_MAP}L2_PROMOTION_{promotion}",
        "oobFill": f"{_MAP}FLOAT_OOB_FILL_NONE",
        "alignment": 128,
    }
