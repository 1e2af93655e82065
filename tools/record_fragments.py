"""Records which lane and register holds which element on this GPU: python tools/record_fragments.py OUT.json

Needs a GPU of compute capability 8.0 or newer. tests/fixtures/fragments.json is made so; `lowlevel study fragment` is
tested against it.

  loads      of ldmatrix and wmma.load, from a matrix whose elements are their own numbers, row by row: for each lane,
             what its registers hold, part by part
  products   of mma.sync and wmma.mma: for each element of A, in the order lane, register, part, the sums that change
             with it, as [sum, element of B that it was multiplied with], counted in the same order

and, on compute capability 9.0:

  stores     of stmatrix: for each element of shared memory, row by row, which element of the registers it is, counted
             by lane, register, part
  sums       of wgmma, for each N: the element of D, row * N + column, of each thread's register 0, and how much later
             that of each register is; the same for every thread
  operands   of wgmma with A from registers: for each element of A, row by row, which element of the registers it is
"""

import json
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # this checkout, installed or not
from lowlevel.compare import support_function
from lowlevel.device.cuda.device import open_device
from lowlevel.device.protocol import LaunchShape
from lowlevel.errors import DeviceError, LowlevelError
from lowlevel.study import warpgroup
from lowlevel.study.descriptor import Descriptor
from lowlevel.study.fragment import FRAGMENTS, LANES, WARPGROUP, Fragment
from lowlevel.toolchain.build import build_all

WARP = LaunchShape((1, 1, 1), (LANES, 1, 1))
#: The bits of a register's part for the whole numbers 0 .. 17, by type.
_BITS = {
    "FP16": lambda n: n.astype(np.float16).view(np.uint16),
    "BF16": lambda n: (n.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16),
    "TF32": lambda n: n.astype(np.float32).view(np.uint32),
    "INT8": lambda n: n.astype(np.uint8),
}
#: N of wgmma.
WIDTHS = range(8, 257, 8)
#: Where the operands of wgmma lie: 8 rows of 16 bytes follow each other, first those of k 0 .. 7, then of 8 .. 15.
A_PLACE, B_PLACE = Descriptor(0, 128, 256, "none"), Descriptor(2048, 128, 256, "none")
_UNSIGNED = {1: np.uint32, 2: np.uint16, 4: np.uint8}
#: name -> (type for mma.cuh, kernel, fragments' name, elements of D that a lane has).
PRODUCTS = {
    "mma.m16n8k16.f16": ("FP16", "products", "mma.m16n8k16", "d"),
    "mma.m16n8k16.bf16": ("BF16", "products", "mma.m16n8k16", "d"),
    "mma.m16n8k16.f16.d.f16": ("FP16_ACC16", "products", "mma.m16n8k16", "d.f16"),
    "mma.m16n8k8.f16": ("FP16", "products_k8", "mma.m16n8k8", "d"),
    "mma.m16n8k8.bf16": ("BF16", "products_k8", "mma.m16n8k8", "d"),
    "mma.m16n8k8.tf32": ("TF32", "products", "mma.m16n8k8.tf32", "d"),
    "mma.m16n8k32.s8": ("INT8", "products", "mma.m16n8k32.s8", "d"),
    "wmma.m16n16k16.bf16": ("BF16", "products_wmma", "wmma.m16n16k16", "d"),
}


def main() -> int:
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    try:
        device = open_device()
        found = {
            "gpu": device.name,
            "capability": list(device.limits.capability),
            "loads": loads(device),
            "products": {name: products(device, *how) for name, how in PRODUCTS.items()},
        }
        if device.limits.capability == (9, 0):
            build_all([warpgroup.request("bf16", n) for n in WIDTHS])  # at once: below, they are in the cache
            found["stores"] = stores(device)
            found["sums"] = {str(n): sums(device, n) for n in WIDTHS}
            found["operands"] = {f"wgmma.m64k16.a.{type_}": operands(device, type_) for type_ in warpgroup.TYPES}
    except LowlevelError as error:
        print(f"record_fragments: {error}", file=sys.stderr)
        return error.exit_code
    Path(sys.argv[1]).write_text(json.dumps(found, separators=(",", ":")) + "\n")
    count = sum(len(maps) for maps in found.values() if isinstance(maps, dict))
    print(f"{sys.argv[1]}: {count} maps of {device.name}")
    return 0


def loads(device) -> dict[str, list]:
    """name -> lane -> elements, in the order register, part."""
    found = {}
    for count in (1, 2, 4):
        for trans in ("", ".trans"):
            kernel = f"ldmatrix_x{count}{trans.replace('.', '_')}_dealt"
            found[f"ldmatrix.x{count}{trans}"] = dealt(device, kernel, np.arange(64 * count, dtype=np.uint16), count, 2)
    numbers = np.arange(256).reshape(16, 16)
    for operand, type_, registers, parts in (
        ("a", "bf16", 4, 2),
        ("a", "f16", 8, 2),
        ("b", "bf16", 4, 2),
        ("b", "f16", 8, 2),
        ("c", "f32", 8, 1),
        ("c", "f16", 4, 2),
    ):
        for layout, matrix in (("row", numbers), ("col", numbers.T)):
            kernel, memory = f"wmma_{operand}_{type_}_{layout}_dealt", matrix.astype(_UNSIGNED[parts])
            name = f"wmma.m16n16k16.{operand}.{type_}.{layout}"
            found[name] = dealt(device, kernel, np.ascontiguousarray(memory), registers, parts)
    return found


def dealt(device, kernel: str, memory: np.ndarray, registers: int, parts: int) -> list[list[int]]:
    function = support_function(device, "fragment_loads.cu", kernel)
    elements, held = device.allocate(memory.nbytes), device.allocate(4 * LANES * registers)
    elements.upload(memory)
    launch(device, function, [elements, held])
    return held.download(_UNSIGNED[parts], (LANES, registers * parts)).tolist()


def products(device, type_: str, kernel: str, name: str, sums: str) -> list[list[list[int]]]:
    """For each element of A, [sum, element of B] of the sums that it changes. Elements of B are told apart by two
    numbers of at most 17, which every type holds exactly."""
    a, b, d = (FRAGMENTS[f"{name}.{operand}"] for operand in ("a", "b", sums))
    function = support_function(device, "fragment_products.cu", kernel, **{f"TYPE_{type_}": 1})
    bits = _BITS[type_.removesuffix("_ACC16")]
    one_hot = words(np.eye(count(a), dtype=int), a, bits)
    numbers = np.arange(count(b))
    low, high = (run(device, function, one_hot, words(n, b, bits), count(a), count(d)) for n in (digits(numbers)))
    return [
        [[int(at), int(low[i, at] - 1 + 16 * (high[i, at] - 1))] for at in np.flatnonzero(low[i])]
        for i in range(count(a))
    ]


def digits(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each number as two from 1 on, low and high."""
    return numbers % 16 + 1, numbers // 16 + 1


def stores(device) -> dict[str, list[int]]:
    """name -> for each element of shared memory, the element of the registers that was stored there."""
    found = {}
    for count in (1, 2, 4):
        for trans in ("", ".trans"):
            kernel = f"stmatrix_x{count}{trans.replace('.', '_')}_stored"
            function = support_function(device, "fragment_stores.cu", kernel)
            numbers = np.arange(64 * count, dtype=np.uint16)
            held, memory = device.allocate(numbers.nbytes), device.allocate(numbers.nbytes)
            held.upload(numbers)
            launch(device, function, [held, memory])
            found[f"stmatrix.x{count}{trans}"] = memory.download(np.uint16, numbers.shape).tolist()
    return found


def sums(device, n: int) -> dict[str, list[int]]:
    """D[m][n] = 256 m + n, as A = (m, 1, 0 ...) and B = (256, n, 0 ...) make it."""
    dtype = warpgroup.TYPES["bf16"]
    A, B = np.zeros((64, 16), dtype), np.zeros((n, 16), dtype)
    A[:, 0], A[:, 1], B[:, 0], B[:, 1] = np.arange(64), 1, 256, np.arange(n)
    memory = np.zeros(warpgroup.MEMORY // 2, dtype)
    warpgroup.laid(A_PLACE, "K", A, memory)
    warpgroup.laid(B_PLACE, "K", B, memory)
    D = warpgroup.of_shared(device, warpgroup.request("bf16", n), memory, A_PLACE, B_PLACE).astype(int)
    places = D // 256 * n + D % 256
    later = places[0] - places[0, 0]
    if not (places == places[:, :1] + later).all():
        raise DeviceError(f"wgmma of N = {n}: threads hold their sums in different orders; thread 0: {places[0]}")
    return {"first": places[:, 0].tolist(), "later": later.tolist()}


def operands(device, type_: str) -> list[int]:
    """Each element of A says its number, in two digits, and B is the unit matrix: D is A."""
    dtype, b = warpgroup.TYPES[type_], B_PLACE
    memory = np.zeros(warpgroup.MEMORY // 2, dtype)
    warpgroup.laid(b, "K", np.eye(16, dtype=dtype), memory)
    asked = warpgroup.request(type_, 16)
    digits = warpgroup.digits(np.arange(WARPGROUP * 8), 32)
    low, high = (
        warpgroup.matrix(warpgroup.of_registers(device, asked, memory, digit.astype(dtype), b)) for digit in digits
    )
    return (low + 32 * high).astype(int).ravel().tolist()


def words(values: np.ndarray, fragment: Fragment, bits) -> np.ndarray:
    """Registers that hold whole numbers, whose last axis is in the order lane, register, part."""
    packed = np.ascontiguousarray(bits(values))
    assert packed.dtype == _UNSIGNED[fragment.parts]
    return packed.view(np.uint32)


def count(fragment: Fragment) -> int:
    return LANES * fragment.registers * fragment.parts


def run(device, function, A: np.ndarray, B: np.ndarray, cases: int, sums: int) -> np.ndarray:
    """(cases, sums) sums, each case's in the order lane, register, part."""
    a, b, d = device.allocate(A.nbytes), device.allocate(B.nbytes), device.allocate(4 * cases * sums)
    a.upload(A)
    b.upload(B)
    launch(device, function, [a, b, d, np.int32(cases)])
    return d.download(np.int32, (cases, sums))


def launch(device, function, arguments: list) -> None:
    stream = device.stream()
    device.bind(function, WARP, arguments).launch(stream)
    stream.synchronize()


if __name__ == "__main__":
    sys.exit(main())
