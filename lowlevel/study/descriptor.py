"""The 64 bits that tell wgmma of an operand in shared memory: fields, rules, and the addresses they lead to.

PTX ISA, 'Matrix Descriptor Format' and 'Strides' of wgmma.mma_async; the addresses are its canonical layouts, compared
with what an H200 read (tests/fixtures/descriptors.json).
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from lowlevel.errors import UsageError
from lowlevel.study.expression import Formula
from lowlevel.study.swizzle import CHUNK, PATTERNS, SPANS, swizzled

#: Bytes along k of one instruction: 16 elements of 16 bits, 32 of 8, 8 of 32.
K_BYTES = 32

#: The two ways that an operand lies in shared memory: rows along k, or rows along m (A) or n (B).
MAJORS = ("K", "MN")

_ADDRESSES = 1 << 18


class Field(NamedTuple):
    """Bits low .. low + width - 1. unit: what the value counts, in bytes; 0 for a mere number."""

    low: int
    width: int
    unit: int

    @property
    def mask(self) -> int:
        return ((1 << self.width) - 1) << self.low

    def of(self, word: int) -> int:
        return (word & self.mask) >> self.low


FIELDS = {
    "start": Field(0, 14, 16),
    "lbo": Field(16, 14, 16),
    "sbo": Field(32, 14, 16),
    "base_offset": Field(49, 3, 0),
    "swizzle": Field(62, 2, 0),
}
SWIZZLES = ("none", "128B", "64B", "32B")  # as the field counts them
_KNOWN = functools.reduce(int.__or__, (field.mask for field in FIELDS.values()))


@dataclass(frozen=True)
class Descriptor:
    """start: the shared address of the operand's first byte. lbo, sbo: bytes, see `meaning`. base_offset: the number
    of the 128-byte line, modulo 8, at which the swizzle's pattern begins, where that is no multiple of its size."""

    start: int
    lbo: int
    sbo: int
    swizzle: str = "128B"
    base_offset: int = 0

    @property
    def word(self) -> int:
        """The 64 bits. UsageError for a value that its field cannot hold."""
        for rule in unheld(self):
            raise UsageError(rule)
        values = {
            "start": self.start // 16,
            "lbo": self.lbo // 16,
            "sbo": self.sbo // 16,
            "base_offset": self.base_offset,
            "swizzle": SWIZZLES.index(self.swizzle),
        }
        return functools.reduce(int.__or__, (values[name] << field.low for name, field in FIELDS.items()))

    def address(self, major: str, row: int, byte: int) -> int:
        """The shared address of a byte of the operand. K-major: row counts m or n, byte goes along k, below 32.
        MN-major: row counts k, below 16, and byte goes along m or n."""
        logical = _place(major, self.swizzle != "none")(
            row=row, byte=byte, start=self.start, lbo=self.lbo, sbo=self.sbo, span=SPANS[self.swizzle]
        )
        return swizzled(logical, self.swizzle, self.base_offset)


def decode(word: int) -> Descriptor:
    """The fields of 64 bits, in bytes. Reserved bits are told by `reserved`."""
    if not 0 <= word < 1 << 64:
        raise UsageError(f"{word:#x} has more than 64 bits" if word > 0 else f"{word} is below 0")
    raw = {name: field.of(word) for name, field in FIELDS.items()}
    return Descriptor(16 * raw["start"], 16 * raw["lbo"], 16 * raw["sbo"], SWIZZLES[raw["swizzle"]], raw["base_offset"])


def reserved(word: int) -> list[int]:
    """The bits that are set and belong to no field."""
    return [bit for bit in range(64) if (word & ~_KNOWN) >> bit & 1]


def encode(start: int, lbo: int, sbo: int, swizzle: str = "128B", base_offset: int = 0) -> Descriptor:
    """A descriptor that keeps every rule. UsageError names the first that it breaks."""
    made = Descriptor(start, lbo, sbo, swizzle, base_offset)
    for rule in itertools.chain(unheld(made), misplaced(made)):
        raise UsageError(rule)
    return made


def unheld(it: Descriptor) -> Iterator[str]:
    """The values that have no place in their field."""
    if it.swizzle not in SPANS:
        yield f"swizzle '{it.swizzle}': there are {', '.join(SPANS)}"
        return
    for name, value in (("start", it.start), ("LBO", it.lbo), ("SBO", it.sbo)):
        if value % 16:
            yield f"{name} {value:#x} is no multiple of 16 bytes, the unit of its field"
        elif not 0 <= value < _ADDRESSES:
            yield f"{name} {value:#x} does not fit in 18 bits: 0 to {_ADDRESSES - 16:#x}"
    if not 0 <= it.base_offset < 8:
        yield f"base offset {it.base_offset} does not fit in 3 bits: 0 to 7"


def misplaced(it: Descriptor) -> Iterator[str]:
    """What the fields can say, and the hardware cannot mean."""
    if it.swizzle == "none":
        if it.base_offset:
            yield f"base offset {it.base_offset} without a swizzle: it must be 0"
        return
    span, pattern = SPANS[it.swizzle], PATTERNS[it.swizzle]
    within = it.start % pattern
    line = it.start // 128 % 8 if within >= 128 else 0
    if it.start % K_BYTES:
        yield f"start {it.start:#x} is no multiple of 32 bytes: within a row, the next k begins 32 bytes on"
    elif within % 128 >= span:
        yield f"start {it.start:#x} lies in row {within // span} of the swizzle: a pattern begins at a multiple of 128"
    elif it.base_offset != line:
        yield (
            f"start {it.start:#x} is {within} bytes into the {pattern} of swizzle {it.swizzle}: base offset {line}, "
            f"not {it.base_offset}" + (", or begin the tile at a multiple" if line else "")
        )


def overlaps(it: Descriptor, major: str) -> Iterator[str]:
    """Strides under which an operand's parts lie on each other, each in a line."""
    span = SPANS[it.swizzle] or CHUNK
    if it.sbo < 8 * span and not (major == "MN" and it.swizzle == "none"):
        group = "8 rows" if major == "K" else "8 k"
        yield f"SBO {it.sbo} is less than the {8 * span} bytes of {group}: the next {group} lie on them"
    if major == "MN" and it.swizzle == "none" and it.sbo < 8 * span:
        yield f"SBO {it.sbo} is less than the {8 * span} bytes of 8 of m or n by 8 k: the next 8 lie on them"


def meaning(it: Descriptor, major: str) -> dict[str, str]:
    """What LBO and SBO say of an operand of this kind."""
    elements = SPANS[it.swizzle] // 2
    if major == "K":
        lbo = (
            "not used: a row of the swizzle has the 32 bytes of k" if elements else "from 16 bytes of k to the next 16"
        )
        return {"lbo": lbo, "sbo": "from 8 rows of m or n to the next 8"}
    if not elements:
        return {"lbo": "from 8 k to the next 8", "sbo": "from 8 of m or n to the next 8"}
    return {"lbo": f"from {elements} of m or n to the next {elements}", "sbo": "from 8 k to the next 8"}


def next_k(it: Descriptor, major: str) -> int:
    """Bytes to add to the start for the next instruction's k: in a swizzled K-major tile, within a row."""
    if major == "MN":
        return 2 * (it.lbo if it.swizzle == "none" else it.sbo)
    return 2 * it.lbo if it.swizzle == "none" else K_BYTES


def place(major: str, swizzle: str) -> str:
    """The formula of an address, before the swizzle, over row, byte, start, lbo, sbo and span."""
    return _PLACES[major, swizzle != "none"]


#: (major, swizzled?) -> formula. K-major without a swizzle: 8 rows of 16 bytes follow each other. With one: rows of
#: `span` bytes. MN-major: the same with k for rows, and m or n along them.
_PLACES = {
    ("K", False): "start + row / 8 * sbo + row % 8 * 16 + byte / 16 * lbo + byte % 16",
    ("K", True): "start + row / 8 * sbo + row % 8 * span + byte",
    ("MN", False): "start + row / 8 * lbo + row % 8 * 16 + byte / 16 * sbo + byte % 16",
    ("MN", True): "start + row / 8 * sbo + row % 8 * span + byte / span * lbo + byte % span",
}


@functools.cache
def _place(major: str, is_swizzled: bool) -> Formula:
    return Formula(_PLACES[major, is_swizzled], ("row", "byte", "start", "lbo", "sbo", "span"))
