"""Records what wgmma reads of shared memory by a descriptor, on this GPU: python tools/record_descriptors.py OUT.json

Needs a GPU of compute capability 9.0. tests/fixtures/descriptors.json is made so; the addresses that `lowlevel study
descriptor` gives are tested against it. Shared memory holds the numbers of its 16-bit elements, and one operand is the
unit matrix, so that the product is what was read of the other.

A case: operand (A or B), major, the descriptor, and for each row (K-major: m or n; MN-major: k) and each 16 bytes along
it the byte where they begin, or, where the 8 elements do not follow each other, all their bytes. Printed is how a base
offset that is not 0 was read.
"""

import dataclasses
import json
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # this checkout, installed or not
from lowlevel.device.cuda.device import open_device
from lowlevel.errors import LowlevelError
from lowlevel.study import warpgroup
from lowlevel.study.descriptor import Descriptor
from lowlevel.study.fragment import FRAGMENTS

#: N where B is read; where A is read, the 16 of the unit matrix.
WIDE, UNIT = 128, 16
#: Elements whose numbers are in shared memory, and the base of their digits; behind them lies the unit matrix.
NUMBERS, BASE = 16384, 128
UNIT_PLACE = Descriptor(2 * NUMBERS, 128, 256, "none")


def cases() -> list[tuple[str, str, Descriptor]]:
    """(operand, major, descriptor), always the same."""
    either = [
        ("K", Descriptor(0, 16, 1024, "128B")),
        ("K", Descriptor(96, 16, 1024, "128B")),  # the fourth k of a row
        ("K", Descriptor(1024, 0, 2048, "128B")),
        ("K", Descriptor(0, 16, 512, "64B")),
        ("K", Descriptor(1056, 16, 512, "64B")),
        ("K", Descriptor(512, 16, 256, "32B")),
        ("K", Descriptor(0, 128, 256, "none")),
        ("K", Descriptor(128, 2048, 128, "none")),
        ("MN", Descriptor(0, 8192, 1024, "128B")),
        ("MN", Descriptor(2048, 2048, 1024, "128B")),
        ("MN", Descriptor(0, 1024, 512, "64B")),
        ("MN", Descriptor(0, 256, 2048, "32B")),
        ("MN", Descriptor(0, 2048, 128, "none")),
        ("MN", Descriptor(256, 128, 256, "none")),
    ]
    shifted = [
        ("K", Descriptor(384, 16, 1024, "128B", 3)),
        ("K", Descriptor(384, 16, 1024, "128B", 0)),
        ("K", Descriptor(1024, 16, 1024, "128B", 5)),
        ("K", Descriptor(128, 16, 512, "64B", 1)),
        ("K", Descriptor(128, 16, 256, "32B", 1)),
        ("MN", Descriptor(384, 8192, 1024, "128B", 3)),
    ]
    return [(operand, *case) for operand in "AB" for case in either] + [("B", *case) for case in shifted]


def main() -> int:
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    try:
        device = open_device()
        found = [recorded(device, *case) for case in cases()]
    except LowlevelError as error:
        print(f"record_descriptors: {error}", file=sys.stderr)
        return error.exit_code
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in found)
    Path(sys.argv[1]).write_text('{"gpu":' + json.dumps(device.name) + ',"cases":[\n' + lines + "\n]}\n")
    print(f"{sys.argv[1]}: {len(found)} descriptors read by {device.name}")
    for case in found:
        if case["descriptor"]["base_offset"]:
            print(f"{case['descriptor']}: base offset {reading(case)}")
    return 0


def recorded(device, operand: str, major: str, it: Descriptor) -> dict:
    low, high = (read(device, operand, major, it, digit) for digit in warpgroup.digits(np.arange(NUMBERS), BASE))
    bytes_ = 2 * (low + BASE * high).astype(int)  # [m or n, k]
    rows = bytes_ if major == "K" else bytes_.T
    chunks = rows.reshape(len(rows), -1, 8)
    return {
        "operand": operand,
        "major": major,
        "descriptor": dataclasses.asdict(it),
        "read": [[packed(chunk) for chunk in row] for row in chunks.tolist()],
    }


def packed(chunk: list[int]) -> int | list[int]:
    return chunk[0] if chunk == list(range(chunk[0], chunk[0] + 16, 2)) else chunk


def read(device, operand: str, major: str, it: Descriptor, numbers: np.ndarray) -> np.ndarray:
    """The operand that the descriptor names, [m or n, k], where shared memory holds `numbers`."""
    dtype = warpgroup.TYPES["bf16"]
    memory = np.zeros(warpgroup.MEMORY // 2, dtype)
    memory[:NUMBERS] = numbers
    if operand == "A":
        asked = warpgroup.request("bf16", UNIT, a_major=major)
        warpgroup.laid(UNIT_PLACE, "K", np.eye(UNIT, dtype=dtype), memory)
        return warpgroup.matrix(warpgroup.of_shared(device, asked, memory, it, UNIT_PLACE))
    asked = warpgroup.request("bf16", WIDE, b_major=major)
    ones = warpgroup.registers(np.eye(64, 16, dtype=dtype), FRAGMENTS["wgmma.m64k16.a"])
    return warpgroup.matrix(warpgroup.of_registers(device, asked, memory, ones, it))[:16].T


def reading(case: dict) -> str:
    """How the base offset was read: which of three ways gives what was read."""
    it = Descriptor(**case["descriptor"])
    ways = {"subtracted": it.base_offset, "ignored": 0, "added": -it.base_offset % 8}
    fit = [way for way, first in ways.items() if addresses(it, case, first) == case["read"]]
    return " or ".join(fit) or "read in another way"


def addresses(it: Descriptor, case: dict, first: int) -> list[list[int]]:
    rows = range(len(case["read"]))
    chunks = range(len(case["read"][0]))
    it = dataclasses.replace(it, base_offset=first)
    return [[it.address(case["major"], row, 16 * chunk) for chunk in chunks] for row in rows]


if __name__ == "__main__":
    sys.exit(main())
