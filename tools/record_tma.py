"""Records what TMA leaves in shared memory, on this GPU: python tools/record_tma.py OUT.json

Needs a GPU of compute capability 9.0 or newer. tests/fixtures/tma.json is made so; `lowlevel study tma` is tested
against it. Each element of a tensor says its number, in two digits of a byte, a load each; before, shared memory is
0xff.

A case has the box and what lies in shared memory, from byte 0 on, by 16 bytes: null where nothing was written, 0 for
zeros, an element's number (row by row, from 1) where it and its followers fill the 16 bytes, else all numbers. `late`:
the load brought less or other bytes than the barrier expected, which are those of the box. Of a box that the hardware
does not load there is `fault` instead: what became of the kernel. That loses the process's CUDA context, so boxes are
loaded in child processes, and one that faults costs its child.

It prints what is not as lowlevel/study/tma.py foretells it.
"""

import contextlib
import functools
import json
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # this checkout, installed or not
from lowlevel.compare import support_function
from lowlevel.device.cuda.device import CudaDevice, open_device
from lowlevel.device.cuda.errors import is_sticky
from lowlevel.device.protocol import LaunchShape
from lowlevel.errors import DeviceError, LowlevelError
from lowlevel.study.swizzle import CHUNK
from lowlevel.study.tma import Box, packed
from lowlevel.worker import Pool, WorkerDied, WorkerHung

#: Bytes that the kernel shows: MEMORY in cu/support/tma_boxes.cu.
MEMORY = 16384
#: Digits are 1 .. BASE, so that 0 is a zero that TMA filled in, and 0xff a byte that it left alone.
BASE = 200
#: Child processes, and how long a box may take in one, with its compiler.
CHILDREN, DEADLINE_S = 4, 60.0
_SHAPE = LaunchShape((1, 1, 1), (128, 1, 1))
_TYPES = {1: np.uint8, 2: np.uint16, 4: np.uint32}


def cases() -> list[Box]:
    """Every swizzle and size of element; offsets; rows that do not fill a swizzle; three dimensions; edges."""
    inner = {"none": 80, "32B": 32, "64B": 64, "128B": 128}  # bytes of a row
    found = []
    for swizzle, span in inner.items():
        for element in (1, 2, 4):
            n, chunk = span // element, CHUNK // element
            right = n + chunk - 3  # extent of a tensor over whose right edge a box goes from the second chunk on
            found.append(Box(element, (10, n), swizzle, 0, (20, 160), (3, chunk)))
            found.append(Box(element, (9, n), swizzle, 0, (6, right), (-2, chunk)))  # over every edge but the left
            found.append(Box(element, (3, n), swizzle, 0, (9, 140), (2, -chunk)))  # over the left edge
            found.append(Box(element, (3, 4, n), swizzle, 0, (5, 6, right), (1, 1, chunk)))
            found.append(Box(element, (3, 5, n), swizzle, 256, (5, 6, 70), (-1, 3, -chunk)))
        n = span // 2
        found.append(Box(2, (8, n), swizzle, 0, (20, 140), (0, 0)))  # nothing special
        found.append(Box(2, (8, n), swizzle, 0, (20, 140), (4, 8)))  # from a multiple of 16 bytes on
        found += [Box(2, (9, n), swizzle, offset, (20, 140), (0, 0)) for offset in (128, 384, 896, 1536)]
        found.append(Box(2, (3, n), swizzle, 0, (9, 140), (9, 0)))  # wholly below
        found.append(Box(2, (3, 4, n), swizzle, 0, (5, 6, 72), (0, 0, 0)))
    for swizzle, widths in (("32B", (16,)), ("64B", (16, 32, 48)), ("128B", (16, 32, 64, 96))):
        found += [Box(2, (10, width // 2), swizzle, 0, (20, 140), (0, 0)) for width in widths]
    return found + refused()


def refused() -> list[Box]:
    """Boxes that do not begin at a multiple of 16 bytes: at 5, 20 and -8, and at 8 for each size of element."""
    return [
        Box(1, (10, 80), "none", 0, (20, 140), (3, 5)),
        Box(4, (10, 32), "128B", 0, (20, 140), (3, 5)),
        Box(2, (3, 5, 64), "128B", 256, (5, 6, 70), (-1, 3, -4)),
        *(Box(element, (8, 128 // element), "128B", 0, (20, 140), (0, 8 // element)) for element in (1, 2, 4)),
    ]


def main() -> int:
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    try:
        gpu, found = recorded_apart(cases(), Pool(CHILDREN, "record", is_lost))
    except LowlevelError as error:
        print(f"record_tma: {error}", file=sys.stderr)
        return error.exit_code
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in found)
    Path(sys.argv[1]).write_text('{"gpu":' + json.dumps(gpu) + ',"cases":[\n' + lines + "\n]}\n")
    print(f"{sys.argv[1]}: {len(found)} boxes of {gpu}")
    for case, box in zip(found, cases(), strict=True):
        if said := surprise(case, box):
            print(f"{said}: {box}")
    return 0


def surprise(case: dict, box: Box) -> str:
    """What the hardware did that the formulas do not say, in a few words."""
    if "fault" in case:
        return "" if box.refusal else f"fault, {case['fault']}"
    if box.refusal:
        return "loaded, against the rule"
    if case["late"]:
        return "other bytes landed than those of the box"
    return "" if case["memory"] == packed(box.landed()) else "not as foretold"


def recorded_apart(boxes: list[Box], pool: Pool) -> tuple[str | None, list[dict]]:
    """(the GPU's name, a case for each box). A box whose load faults, hangs or ends its child is such a case."""
    gpu, found = None, {}
    with contextlib.closing(pool.map(recorded_here, [(box,) for box in boxes], DEADLINE_S)) as outcomes:
        for i, outcome in outcomes:
            if isinstance(outcome, LowlevelError):
                found[i] = {**fields(boxes[i]), "fault": fault(outcome)}
            else:
                gpu, found[i] = outcome
    return gpu, [found[i] for i in range(len(boxes))]


def fault(error: LowlevelError) -> str:
    """The driver's name for it in words: 'illegal instruction'. Errors that are no answer of a box are raised again."""
    if is_lost(error):
        return error.name.removeprefix("CUDA_ERROR_").lower().replace("_", " ")
    if isinstance(error, WorkerDied | WorkerHung):
        return str(error)
    raise error


def is_lost(error: LowlevelError) -> bool:
    return isinstance(error, DeviceError) and is_sticky(error)


def recorded_here(box: Box) -> tuple[str, dict]:
    """In a child: the GPU's name and the case."""
    device = own_device()
    return device.name, recorded(device, box)


@functools.cache
def own_device() -> CudaDevice:
    return open_device()


def recorded(device, box: Box) -> dict:
    (low, late), (high, _) = (loaded(device, box, digit) for digit in digits(box))
    return {**fields(box), "late": late, "memory": packed(landed(low, high, box.element))}


def fields(box: Box) -> dict:
    return {name: getattr(box, name) for name in ("element", "box", "swizzle", "offset", "tensor", "at")}


def digits(box: Box) -> tuple[np.ndarray, np.ndarray]:
    """Low and high digits of the elements' numbers from 0 on, each in 1 .. BASE, in the tensor's shape."""
    numbers = np.arange(np.prod(box.tensor)).reshape(box.tensor)
    assert numbers.max() < BASE * BASE
    return numbers % BASE + 1, numbers // BASE + 1


def landed(low: np.ndarray, high: np.ndarray, element: int) -> dict[int, tuple[int, ...]]:
    """Address of each chunk that was written -> its elements' numbers, 0 for zeros."""
    dtype = _TYPES[element]
    untouched = np.iinfo(dtype).max
    low, high = (memory.view(dtype).reshape(-1, CHUNK // element).astype(np.int64) for memory in (low, high))
    found = {}
    for i, (a, b) in enumerate(zip(low, high, strict=True)):
        if (a == untouched).all() and (b == untouched).all():
            continue
        numbers = np.where((a == 0) & (b == 0), 0, (a - 1) + BASE * (b - 1) + 1)
        found[CHUNK * i] = tuple(int(n) for n in numbers)
    return found


def loaded(device, box: Box, digit: np.ndarray) -> tuple[np.ndarray, bool]:
    """Shared memory after the load, in bytes, and whether its bytes were not those of the box."""
    spec = box.map
    rows = digit.reshape(-1, box.tensor[-1]).astype(_TYPES[box.element])
    pitch = spec.strides[-1] // box.element
    padded = np.zeros((len(rows), pitch), rows.dtype)
    padded[:, : rows.shape[1]] = rows
    tensor, memory, status = device.allocate(padded.nbytes), device.allocate(MEMORY), device.allocate(4)
    tensor.upload(padded)
    function = support_function(device, "tma_boxes.cu", f"tma_box_{len(box.box)}d")
    where = [np.uint32(box.offset), np.uint32(box.bytes), *(np.int32(c) for c in reversed(box.at))]
    stream = device.stream()
    device.bind(function, _SHAPE, [device.tensor_map(spec, tensor), memory, status, *where]).launch(stream)
    stream.synchronize()
    said = int(status.download(np.int32, (1,))[0])
    if said == 1:
        raise DeviceError("tma_boxes: its shared memory does not begin at a multiple of 1024")
    return memory.download(np.uint8, (MEMORY,)), said == 2


if __name__ == "__main__":
    sys.exit(main())
