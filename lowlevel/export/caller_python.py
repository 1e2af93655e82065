"""call.py: a program that launches an exported kernel by launch.json alone, with cuda-python and numpy.

Its parts are put together for what the launches need; nothing but the formula of an element is written into it.
"""

from __future__ import annotations

from lowlevel.errors import UsageError
from lowlevel.export.example import Formula
from lowlevel.problems.base import Problem

_HEAD = '''\
"""Launches @KERNEL@ at @SHAPE@ as launch.json describes it, and checks a few elements of the result.

python call.py      prints ok; needs cuda-python and numpy
"""

import ctypes
import json
from pathlib import Path

import numpy as np
from cuda.bindings import driver

HERE = Path(__file__).resolve().parent
CALL = json.loads((HERE / "launch.json").read_text())
SCALARS = {"int32": ctypes.c_int32, "int64": ctypes.c_int64, "float32": ctypes.c_float, "float64": ctypes.c_double}


def check(result):
    """The value behind a driver call's status."""
    status, *values = result
    if int(status) != 0:
        raise SystemExit(f"call.py: the driver says {status.name}")
    return values[0] if values else None


def digit(operand, row, column):
    """0, 1 or 2, well mixed: an element of an input is this less 1."""
    mixed = (operand * 0xC2B2AE3D + row * 0x9E3779B1 + column * 0x85EBCA77) & 0xFFFFFFFF
    mixed = (mixed ^ (mixed >> 15)) * 0x2C1B3C6D & 0xFFFFFFFF
    return (mixed ^ (mixed >> 12)) % 3


def in_memory(number, operand):
    """An input as it lies in memory: rows `leading_dimension` elements apart."""
    rows, columns = operand["shape"]
    bits = np.array([int(b, 16) for b in operand["bits"]], f"u{operand['element_bytes']}")
    memory = np.zeros((rows, operand["leading_dimension"]), bits.dtype)
    for row in range(rows):
        memory[row, :columns] = bits[digit(number, row, np.arange(columns, dtype=np.uint64))]
    return memory


def allocate(operands):
    """Device memory for every operand: inputs in place, outputs full of 0xFF. Name -> address."""
    addresses = {}
    for number, operand in enumerate(operands):
        address = addresses[operand["name"]] = int(check(driver.cuMemAlloc(operand["bytes"])))
        if operand["output"]:
            check(driver.cuMemsetD8(address, 0xFF, operand["bytes"]))
        else:
            host = in_memory(number, operand)
            check(driver.cuMemcpyHtoD(address, host.ctypes.data, host.nbytes))
@WORKSPACE@    return addresses


def argument(parameter, addresses):
    """A ctypes object that holds what the kernel's parameter will hold."""
    kind = parameter["kind"]
@MAP_BRANCH@    if kind == "pointer":
        return ctypes.c_uint64(addresses[parameter["operand"]]@OFFSET@)
@STRUCT_BRANCH@@ZEROS_BRANCH@    return SCALARS[kind](parameter["value"])


'''

_WORKSPACE = """\
    addresses[None] = int(check(driver.cuMemAlloc(CALL["workspace_bytes"])))  # scratch memory, zeroed once
    check(driver.cuMemsetD8(addresses[None], 0, CALL["workspace_bytes"]))
"""

#: Where a parameter lies in the workspace.
_OFFSET = ' + parameter.get("offset", 0)'

_MAP_BRANCH = """\
    if kind == "tensor_map":
        return tensor_map(parameter, addresses[parameter["operand"]]@OFFSET@)
"""

_ZEROS_BRANCH = """\
    if kind == "zeros":
        return (ctypes.c_uint8 * parameter["size"])()
"""

_STRUCT_BRANCH = """\
    if kind == "struct":
        return struct(parameter, addresses)
"""

_STRUCT = '''\
def struct(parameter, addresses):
    """A struct passed by value; addresses that point to no operand are null."""
    fields = [(f["name"], SCALARS.get(f["kind"], ctypes.c_uint64)) for f in parameter["fields"]]
    values = [f["value"] if "value" in f else addresses.get(f["operand"], 0) for f in parameter["fields"]]
    return type("Struct", (ctypes.Structure,), {"_fields_": fields})(*values)


'''

_MAP = '''\
def tensor_map(parameter, address):
    """A TMA descriptor, encoded by the driver into memory aligned as it asks."""
    bytes_, align = parameter["size"], parameter["alignment"]
    room = ctypes.create_string_buffer(bytes_ + align)
    start = -ctypes.addressof(room) % align
    encoded = (ctypes.c_uint8 * bytes_).from_buffer(room, start)

    def constant(enumeration, key):
        return ctypes.c_int(int(getattr(getattr(driver, enumeration), parameter[key])))

    def numbers(ctype, key):
        return (ctype * max(1, len(parameter[key])))(*parameter[key])

    status = ctypes.CDLL("libcuda.so.1").cuTensorMapEncodeTiled(
        ctypes.byref(encoded),
        constant("CUtensorMapDataType", "tensorDataType"),
        ctypes.c_uint32(parameter["tensorRank"]),
        ctypes.c_void_p(address),
        numbers(ctypes.c_uint64, "globalDim"),
        numbers(ctypes.c_uint64, "globalStrides"),
        numbers(ctypes.c_uint32, "boxDim"),
        numbers(ctypes.c_uint32, "elementStrides"),
        constant("CUtensorMapInterleave", "interleave"),
        constant("CUtensorMapSwizzle", "swizzle"),
        constant("CUtensorMapL2promotion", "l2Promotion"),
        constant("CUtensorMapFloatOOBfill", "oobFill"),
    )
    check((driver.CUresult(status),))
    return encoded


'''

_LAUNCH = '''\
def start(module, launch, addresses):
    """Enqueues one launch; the driver has read the arguments when it returns."""
    kernel = check(driver.cuModuleGetFunction(module, launch["entry"].encode()))
    config = driver.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = launch["grid"]
    config.blockDimX, config.blockDimY, config.blockDimZ = launch["block"]
    config.sharedMemBytes = launch["dynamic_shared_bytes"]
@SHARED@@ATTRIBUTES@    arguments = [argument(parameter, addresses) for parameter in launch["parameters"]]
    pointers = (ctypes.c_void_p * len(arguments))(*(ctypes.addressof(a) for a in arguments))
    check(driver.cuLaunchKernelEx(config, kernel, ctypes.addressof(pointers), 0))


'''

_SHARED = """\
    most = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    check(driver.cuFuncSetAttribute(kernel, most, launch["dynamic_shared_bytes"]))
"""

_ATTRIBUTES = """\
    special = attributes(launch)
    config.attrs, config.numAttrs = special, len(special)
"""

_ATTRIBUTE_FUNCTION = '''\
def attributes(launch):
    """The launch attributes that are set."""
    found, identifier = [], driver.CUlaunchAttributeID

    def one(name):
        found.append(driver.CUlaunchAttribute())
        found[-1].id = getattr(identifier, f"CU_LAUNCH_ATTRIBUTE_{name}")
        return found[-1].value

    if launch["cluster"]:
        size = one("CLUSTER_DIMENSION").clusterDim
        size.x, size.y, size.z = launch["cluster"]
    if launch["cooperative"]:
        one("COOPERATIVE").cooperative = 1
    if launch["programmatic"]:
        one("PROGRAMMATIC_STREAM_SERIALIZATION").programmaticStreamSerializationAllowed = 1
    return found


'''

_TABLE = '''\
def expected(element):
    """What launch.json says of it."""
    return element["value"]


'''

_FORMULA = '''\
def expected(element):
    """The element as its formula says it, in integers."""
    row, column = element["row"], element["column"]
    return @SUM@


'''

_END = '''\
def stored(output, address, row, column):
    """One element of the output, fetched from the device."""
    bits = np.zeros(1, "u@BYTES@")
    offset = (row * output["leading_dimension"] + column) * output["element_bytes"]
    check(driver.cuMemcpyDtoH(bits.ctypes.data, address + offset, bits.nbytes))
    return float(@DECODE@[0])


def main():
    try:
        check(driver.cuInit(0))
    except RuntimeError as error:  # cuda-python found no libcuda
        raise SystemExit(f"call.py: no CUDA driver: {error}") from None
    check(driver.cuCtxSetCurrent(check(driver.cuDevicePrimaryCtxRetain(check(driver.cuDeviceGet(0))))))
    module = check(driver.cuModuleLoad(str(HERE / CALL["cubin"]).encode()))
    addresses = allocate(CALL["operands"])
    for launch in CALL["launches"]:
        start(module, launch, addresses)
    check(driver.cuCtxSynchronize())
    output = next(o for o in CALL["operands"] if o["output"])
    for element in CALL["example"]["expect"]:
        row, column, want = element["row"], element["column"], expected(element)
        got = stored(output, addresses[output["name"]], row, column)
        if not abs(got - want) <= element["tolerance"]:
            raise SystemExit(f"call.py: {output['name']}[{row}][{column}] is {got}, expected {want}")
    print("ok")


if __name__ == "__main__":
    main()
'''

#: How an output element becomes a number.
_DECODE = {
    "fp32": 'bits.view("f4")',
    "fp16": 'bits.view("f2")',
    "bf16": '(bits.astype("u4") << 16).view("f4")',
    "int32": 'bits.view("i4")',
    "int8": 'bits.view("i1")',
}


def write(description: dict, problem: Problem, formula: Formula | None) -> str:
    """The text of call.py. UsageError for an output type that numpy cannot read."""
    launches = description["launches"]
    output = next(o for o in description["operands"] if o["output"])
    if output["element"] not in _DECODE:
        raise UsageError(f"export: the callers cannot read results of type {output['element']}")
    kinds = {p["kind"] for launch in launches for p in launch["parameters"]}
    maps, structs = "tensor_map" in kinds, "struct" in kinds
    workspace = description["workspace_bytes"]
    special = any(launch[key] for launch in launches for key in ("cluster", "cooperative", "programmatic"))
    shared = any(launch["dynamic_shared_bytes"] for launch in launches)
    parts = [
        _HEAD.replace("@MAP_BRANCH@", _MAP_BRANCH if maps else "")
        .replace("@STRUCT_BRANCH@", _STRUCT_BRANCH if structs else "")
        .replace("@ZEROS_BRANCH@", _ZEROS_BRANCH if "zeros" in kinds else "")
        .replace("@WORKSPACE@", _WORKSPACE if workspace else "")
        .replace("@OFFSET@", _OFFSET if workspace else ""),
        _MAP if maps else "",
        _STRUCT if structs else "",
        _ATTRIBUTE_FUNCTION if special else "",
        _LAUNCH.replace("@SHARED@", _SHARED if shared else "").replace("@ATTRIBUTES@", _ATTRIBUTES if special else ""),
        _FORMULA.replace("@SUM@", _sum(formula)) if formula else _TABLE,
        _END.replace("@DECODE@", _DECODE[output["element"]]).replace("@BYTES@", str(output["element_bytes"])),
    ]
    return "".join(parts).replace("@KERNEL@", description["kernel"]).replace("@SHAPE@", problem.label)


def _sum(formula: Formula) -> str:
    product = " * ".join(f"(digit({o}, {row}, {column}) - 1)" for o, row, column in formula.factors)
    return (
        product
        if formula.terms == 1 and len(formula.factors) == 1
        else f"sum({product} for k in range({formula.terms}))"
    )
