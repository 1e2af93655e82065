"""call.c: a program that launches an exported kernel with the CUDA driver API alone, its numbers written out."""

from __future__ import annotations

from collections.abc import Iterator

from lowlevel.errors import UsageError
from lowlevel.export.example import Formula
from lowlevel.problems.base import Problem

_HEAD = """\
// Launches @KERNEL@ at @SHAPE@, and checks a few elements of the result.
//
//   cc call.c -o call -lcuda && ./call        prints ok; run it beside @CUBIN@
//
// Where cuda.h is not found, add -I/usr/local/cuda/include. Where -lcuda is not, as with the toolkit alone, add
// -L/usr/local/cuda/lib64/stubs: it links there, and runs where the driver is.

#include <cuda.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(call) check(call, #call)

static void check(CUresult status, const char* call) {
    const char* name = "unknown error";
    if (status == CUDA_SUCCESS) return;
    cuGetErrorName(status, &name);
    fprintf(stderr, "call.c: %s: %s\\n", call, name);
    exit(1);
}

// -1, 0 or 1, well mixed: an element of input number `operand`.
static int value(uint32_t operand, uint32_t row, uint32_t column) {
    uint32_t mixed = operand * 0xC2B2AE3Du + row * 0x9E3779B1u + column * 0x85EBCA77u;
    mixed = (mixed ^ (mixed >> 15)) * 0x2C1B3C6Du;
    return (int)((mixed ^ (mixed >> 12)) % 3) - 1;
}

// Device memory with an input: rows `leading` elements of `size` bytes apart. bits[1 + v] is value v in its type.
static CUdeviceptr input(uint32_t operand, size_t rows, size_t columns, size_t leading, size_t size,
                         const uint32_t* bits) {
    unsigned char* host = calloc(rows * leading, size);
    CUdeviceptr address;
    if (!host) exit((fprintf(stderr, "call.c: no memory for %zu x %zu elements\\n", rows, leading), 1));
    for (size_t row = 0; row < rows; row++)
        for (size_t column = 0; column < columns; column++)
            memcpy(host + (row * leading + column) * size, &bits[1 + value(operand, (uint32_t)row, (uint32_t)column)],
                   size);
    CHECK(cuMemAlloc(&address, rows * leading * size));
    CHECK(cuMemcpyHtoD(address, host, rows * leading * size));
    free(host);
    return address;
}

// Device memory filled with one byte.
static CUdeviceptr filled(size_t bytes, unsigned char byte) {
    CUdeviceptr address;
    CHECK(cuMemAlloc(&address, bytes));
    CHECK(cuMemsetD8(address, byte, bytes));
    return address;
}

"""

#: Element of the output -> C statements that turn `raw` into a number.
_DECODE = {
    "fp32": ("uint32_t", ["float number;", "memcpy(&number, &raw, sizeof number);"]),
    "int32": ("int32_t", ["int32_t number = raw;"]),
    "int8": ("int8_t", ["int8_t number = raw;"]),
    "bf16": (
        "uint16_t",
        ["uint32_t word = (uint32_t)raw << 16;", "float number;", "memcpy(&number, &word, sizeof number);"],
    ),
    "fp16": (
        "uint16_t",
        [
            "int exponent = raw >> 10 & 31, fraction = raw & 1023;",
            "double number = exponent ? (1024.0 + fraction) * (1 << exponent) / (1 << 25) : fraction / 16777216.0;",
            "if (exponent == 31) return 0.0 / 0.0;",
            "if (raw >> 15) number = -number;",
        ],
    ),
}

_C_TYPES = {"int32": "int32_t", "int64": "int64_t", "float32": "float", "float64": "double"}


def write(description: dict, problem: Problem, formula: Formula | None) -> str:
    """The text of call.c. UsageError for an output type that it cannot read."""
    output = next(o for o in description["operands"] if o["output"])
    if output["element"] not in _DECODE:
        raise UsageError(f"export: the callers cannot read results of type {output['element']}")
    head = _HEAD.replace("@KERNEL@", description["kernel"]).replace("@SHAPE@", problem.label)
    lines = [
        *_element(output),
        *(_expected(formula) if formula else ()),
        "int main(void) {",
        *_indented(_context(description["cubin"])),
        *_indented(_operands(description["operands"])),
        *_indented(_workspace(description)),
        *_indented(_scalars(description["launches"])),
    ]
    for number, launch in enumerate(description["launches"]):
        lines += ["", *_indented(_launch(number, launch))]
    lines += ["", "    CHECK(cuCtxSynchronize());", *_indented(_checks(description, output, formula)), "}"]
    return head.replace("@CUBIN@", description["cubin"]) + "\n".join(lines) + "\n"


def _indented(lines) -> Iterator[str]:
    return (f"    {line}" if line else "" for line in lines)


def _element(output: dict) -> Iterator[str]:
    ctype, statements = _DECODE[output["element"]]
    yield f"// One element ({output['element']}) of the output, fetched from the device."
    yield "static double element(CUdeviceptr address, long long row, long long column) {"
    yield f"    {ctype} raw;"
    offset = f"(row * {output['leading_dimension']} + column) * sizeof raw"
    yield f"    CHECK(cuMemcpyDtoH(&raw, address + {offset}, sizeof raw));"
    yield from _indented(statements)
    yield "    return number;"
    yield "}"
    yield ""


def _expected(formula: Formula) -> Iterator[str]:
    product = " * ".join(f"value({o}, {row}, {column})" for o, row, column in formula.factors)
    yield "// The element as its formula says it, in integers."
    yield "static double expected(uint32_t row, uint32_t column) {"
    if formula.terms == 1 and len(formula.factors) == 1:
        yield f"    return {product};"
    else:
        yield "    long long sum = 0;"
        yield f"    for (uint32_t k = 0; k < {formula.terms}; k++) sum += {product};"
        yield "    return (double)sum;"
    yield "}"
    yield ""


def _context(cubin: str) -> Iterator[str]:
    yield "CUdevice device;"
    yield "CUcontext context;"
    yield "CUmodule module;"
    yield "CHECK(cuInit(0));"
    yield "CHECK(cuDeviceGet(&device, 0));"
    yield "CHECK(cuDevicePrimaryCtxRetain(&context, device));"
    yield "CHECK(cuCtxSetCurrent(context));"
    yield f'CHECK(cuModuleLoad(&module, "{cubin}"));'
    yield ""


def _operands(operands: list[dict]) -> Iterator[str]:
    for number, o in enumerate(operands):
        name, (rows, columns) = o["name"], o["shape"]
        where = f"// {name}: {o['element']}, {rows} x {columns}, rows {o['leading_dimension']} elements apart."
        if o["output"]:
            yield f"{where} Full of 0xFF until it is written."
            yield f"CUdeviceptr {name} = filled({o['bytes']}u, 0xFF);"
        else:
            yield where
            yield f"const uint32_t {name}_bits[3] = {{{', '.join(o['bits'])}}};"
            sizes = f"{rows}, {columns}, {o['leading_dimension']}, {o['element_bytes']}"
            yield f"CUdeviceptr {name} = input({number}, {sizes}, {name}_bits);"


def _workspace(description: dict) -> Iterator[str]:
    if nbytes := description["workspace_bytes"]:
        yield f"CUdeviceptr scratch = filled({nbytes}u, 0);  // memory that the launches share, zeroed once"


def _scalars(launches: list[dict]) -> Iterator[str]:
    """Each name once: in all launches of a call it has the same value."""
    named = {p["name"]: p for launch in launches for p in launch["parameters"] if "value" in p}
    for name, parameter in named.items():
        yield f"{_C_TYPES[parameter['kind']]} {name} = {parameter['value']};"


def _launch(number: int, launch: dict) -> Iterator[str]:
    names = []
    for p in launch["parameters"]:
        names.append(_argument(number, p))
        if p["kind"] == "tensor_map":
            yield from _map(names[-1], p)
        elif p["kind"] == "struct":
            yield from _struct(names[-1], p)
        elif p["kind"] == "pointer" and p["operand"] is None:
            yield f"CUdeviceptr {names[-1]} = scratch + {p['offset']};"
        elif p["kind"] == "zeros":
            yield f"unsigned char {names[-1]}[{p['size']}] = {{0}};"
    kernel = f"kernel{number}"
    yield f"void* parameters{number}[] = {{{', '.join('&' + name for name in names)}}};"
    yield f"CUfunction {kernel};"
    yield f'CHECK(cuModuleGetFunction(&{kernel}, module, "{launch["entry"]}"));'
    if shared := launch["dynamic_shared_bytes"]:
        attribute = "CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES"
        yield f"CHECK(cuFuncSetAttribute({kernel}, {attribute}, {shared}));"
    attributes = list(_attributes(launch))
    if attributes:
        yield f"CUlaunchAttribute attributes{number}[{len(attributes)}] = {{0}};"
    for index, (identifier, values) in enumerate(attributes):
        yield f"attributes{number}[{index}].id = CU_LAUNCH_ATTRIBUTE_{identifier};"
        for member, value in values:
            yield f"attributes{number}[{index}].value.{member} = {value};"
    yield f"CUlaunchConfig config{number} = {{"
    for field, sizes in (("gridDim", launch["grid"]), ("blockDim", launch["block"])):
        yield "    " + ", ".join(f".{field}{axis} = {size}" for axis, size in zip("XYZ", sizes, strict=True)) + ","
    yield f"    .sharedMemBytes = {shared},"
    if attributes:
        yield f"    .attrs = attributes{number}, .numAttrs = {len(attributes)},"
    yield "};"
    yield f"CHECK(cuLaunchKernelEx(&config{number}, {kernel}, parameters{number}, NULL));"


def _argument(number: int, parameter: dict) -> str:
    """The variable that holds a parameter; maps and workspaces belong to their launch."""
    if parameter["kind"] == "pointer" and parameter["operand"] is not None:
        return parameter["operand"]
    return parameter["name"] if "value" in parameter else f"{parameter['name']}{number}"


def _struct(name: str, p: dict) -> Iterator[str]:
    """A struct passed by value."""
    members = [
        (f["name"], _C_TYPES.get(f["kind"], "CUdeviceptr"), f.get("value", f.get("operand") or 0)) for f in p["fields"]
    ]
    declared = " ".join(f"{ctype} {member};" for member, ctype, _ in members)
    yield f"struct {{ {declared} }} {name} = {{{', '.join(str(value) for *_, value in members)}}};"


def _attributes(launch: dict) -> Iterator[tuple[str, list[tuple[str, int]]]]:
    if launch["cluster"]:
        members = zip(("clusterDim.x", "clusterDim.y", "clusterDim.z"), launch["cluster"], strict=True)
        yield "CLUSTER_DIMENSION", list(members)
    if launch["cooperative"]:
        yield "COOPERATIVE", [("cooperative", 1)]
    if launch["programmatic"]:
        yield "PROGRAMMATIC_STREAM_SERIALIZATION", [("programmaticStreamSerializationAllowed", 1)]


def _map(name: str, p: dict) -> Iterator[str]:
    """A TMA descriptor; dimensions innermost first, strides in bytes."""

    def numbers(key: str) -> str:
        return ", ".join(map(str, p[key])) or "0"

    arrays = (("cuuint64_t", "dims", "globalDim"), ("cuuint64_t", "strides", "globalStrides"))
    arrays += (("cuuint32_t", "box", "boxDim"), ("cuuint32_t", "steps", "elementStrides"))
    for ctype, suffix, key in arrays:
        yield f"const {ctype} {name}_{suffix}[] = {{{numbers(key)}}};"
    address = p["operand"] or f"(scratch + {p['offset']})"
    yield f"CUtensorMap {name};"
    yield f"CHECK(cuTensorMapEncodeTiled(&{name}, {p['tensorDataType']}, {p['tensorRank']}, (void*){address},"
    yield f"                             {name}_dims, {name}_strides, {name}_box, {name}_steps, {p['interleave']},"
    yield f"                             {p['swizzle']}, {p['l2Promotion']}, {p['oobFill']}));"


def _checks(description: dict, output: dict, formula: Formula | None) -> Iterator[str]:
    fields = "long long row, column; double tolerance" + ("" if formula else ", expected")
    yield f"const struct {{ {fields}; }} checks[] = {{"
    for e in description["example"]["expect"]:
        told = "" if formula else f", {e['value']!r}"
        yield f"    {{{e['row']}, {e['column']}, {e['tolerance']!r}{told}}},"
    yield "};"
    want = "expected((uint32_t)row, (uint32_t)column)" if formula else "checks[i].expected"
    name = output["name"]
    yield "for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {"
    yield "    long long row = checks[i].row, column = checks[i].column;"
    yield f"    double got = element({name}, row, column), want = {want};"
    yield "    double error = got < want ? want - got : got - want;"
    yield "    if (error <= checks[i].tolerance) continue;  // false for NaN"
    yield f'    fprintf(stderr, "call.c: {name}[%lld][%lld] is %g, expected %g\\n", row, column, got, want);'
    yield "    return 1;"
    yield "}"
    yield 'puts("ok");'
    yield "return 0;"
