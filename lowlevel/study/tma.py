"""Where TMA puts a box of a tensor in shared memory: rows of 16-byte chunks, swizzled, zeros for what lies outside.

CUDA C++ Programming Guide, 'Tensor Memory Access'; PTX ISA, 'Tensors' and 'Swizzling Modes'. tests/fixtures/tma.json
has what an H200 did, also which boxes it does not load.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lowlevel.errors import UsageError
from lowlevel.study.swizzle import CHUNK, SPANS, formula, swizzled
from lowlevel.tensormap import TensorMap, broken_coordinate, check_rules

#: Bytes of an element -> an element type of that size, for the rules of tensor maps.
ELEMENTS = {1: "int8", 2: "bf16", 4: "int32"}

#: What the copy engine asks of an address in shared memory.
ALIGNMENT = 128

#: Bytes of shared memory that a block can have on the GPUs that have a copy engine for tensors.
SHARED = 227 * 1024


@dataclass(frozen=True)
class Box:
    """A load. Sizes and coordinates outermost first, as an array's shape; instructions name x, the innermost, first.

    element: bytes. box: elements fetched at once. swizzle: none, 32B, 64B or 128B. offset: the shared address.
    tensor: its shape, that of the box if empty. at: coordinates of the box's first element, all 0 if empty.
    """

    element: int
    box: tuple[int, ...]
    swizzle: str = "none"
    offset: int = 0
    tensor: tuple[int, ...] = ()
    at: tuple[int, ...] = ()

    def __post_init__(self):
        object.__setattr__(self, "tensor", tuple(self.tensor) or self.box)
        object.__setattr__(self, "at", tuple(self.at) or (0,) * len(self.box))
        if self.element not in ELEMENTS:
            raise UsageError(f"an element of {self.element} bytes: there are {', '.join(map(str, ELEMENTS))}")
        if not len(self.box) == len(self.tensor) == len(self.at):
            raise UsageError(f"box {self.box}, tensor {self.tensor} and coordinates {self.at} differ in dimensions")
        for size in self.box:
            if not 1 <= size <= 256:
                raise UsageError(f"a box of {size} elements in a dimension: 1 to 256")
        for coordinate in self.at:
            if not -(2**31) <= coordinate < 2**31:
                raise UsageError(f"coordinate {coordinate} does not fit in the 32 bits that the instruction has for it")
        check_rules(self.map, ALIGNMENT)
        if self.offset < 0 or self.offset % ALIGNMENT:
            raise UsageError(f"shared memory at {self.offset}: the copy engine takes multiples of {ALIGNMENT}")
        end = self.offset + self.rows * self.pitch
        if end > SHARED:
            raise UsageError(f"a box that ends at byte {end} of shared memory: a block has at most {SHARED}")

    @property
    def map(self) -> TensorMap:
        """Of a tensor whose rows begin at the next multiple of 16 bytes."""
        pitch = -(-self.tensor[-1] * self.element // 16) * 16
        strides = [pitch * math.prod(self.tensor[i + 1 : -1]) for i in range(len(self.tensor) - 1)]
        return TensorMap(ELEMENTS[self.element], self.tensor, tuple(strides), self.box, self.swizzle)

    @property
    def refusal(self) -> str:
        """Why the hardware does not load it, empty if it does: a rule of coordinates, which no map has."""
        return broken_coordinate(self.map, self.at[-1])

    @property
    def rows(self) -> int:
        return math.prod(self.box[:-1])

    @property
    def chunks(self) -> int:
        """Of 16 bytes, in a row."""
        return self.box[-1] * self.element // CHUNK

    @property
    def pitch(self) -> int:
        """Bytes from a row to the next: what the row has, or the swizzle's whole span, of which a narrow row uses a
        part."""
        return max(SPANS[self.swizzle], CHUNK * self.chunks)

    @property
    def bytes(self) -> int:
        """What the mbarrier must expect: the box, zeros included."""
        return self.element * math.prod(self.box)

    def address(self, row: int, chunk: int) -> int:
        """Where a chunk of a row lies in shared memory. Rows of several dimensions are counted through."""
        return swizzled(self.offset + row * self.pitch + chunk * CHUNK, self.swizzle)

    def told(self) -> list[str]:
        """The formula, in lines."""
        lines = [f"address = {self.offset} + {self.pitch} * row + {CHUNK} * chunk"]
        return lines + [f"then    = {formula(self.swizzle)}"] * (self.swizzle != "none")

    def elements(self, row: int, chunk: int) -> tuple[int, ...]:
        """What a chunk holds: numbers of the tensor's elements, row-major from 1 on, 0 for one outside."""
        outer = _counted(row, self.box[:-1])
        count = CHUNK // self.element
        return tuple(self._number((*outer, chunk * count + i)) for i in range(count))

    def _number(self, index: Sequence[int]) -> int:
        place = [first + i for first, i in zip(self.at, index, strict=True)]
        if not all(0 <= p < extent for p, extent in zip(place, self.tensor, strict=True)):
            return 0
        number = 0
        for p, extent in zip(place, self.tensor, strict=True):
            number = number * extent + p
        return number + 1

    def places(self) -> Iterator[tuple[int, int]]:
        """(row, chunk), all of them."""
        return itertools.product(range(self.rows), range(self.chunks))

    def landed(self) -> dict[int, tuple[int, ...]]:
        """Address of each chunk that is written -> its elements."""
        return {self.address(*place): self.elements(*place) for place in self.places()}

    def row_name(self, row: int) -> str:
        """`3`, or `1.3` in a box of three dimensions."""
        return ".".join(map(str, _counted(row, self.box[:-1]))) or "0"


def packed(landed: dict[int, tuple[int, ...]]) -> list:
    """`landed` in few words: for each chunk of shared memory from byte 0 on, None where nothing is written, 0 for
    zeros, the first element's number where the others follow it, else all numbers."""
    if not landed:
        return []
    return [_packed(landed.get(address)) for address in range(0, max(landed) + CHUNK, CHUNK)]


def _packed(elements: tuple[int, ...] | None):
    if elements is None or not any(elements):
        return None if elements is None else 0
    follow = elements[0] and elements == tuple(range(elements[0], elements[0] + len(elements)))
    return elements[0] if follow else list(elements)


def draw(it: Box) -> tuple[list[str], list[list[str]]]:
    """Shared memory in lines of 128 bytes: heads and rows. A cell says row:chunk, `0` for zeros alone, `+0` after one
    that has some zeros, a dot where nothing is written."""
    cells = {it.address(row, chunk): _cell(it, row, chunk) for row, chunk in it.places()}
    first, last = min(cells) // 128 * 128, max(cells)
    heads = ["byte", *(f"+{i}" for i in range(0, 128, CHUNK))]
    lines = [
        [str(line), *(cells.get(line + i, ".") for i in range(0, 128, CHUNK))] for line in range(first, last + 1, 128)
    ]
    return heads, lines


def _cell(it: Box, row: int, chunk: int) -> str:
    elements = it.elements(row, chunk)
    if not any(elements):
        return "0"
    return f"{it.row_name(row)}:{chunk}" + "+0" * (not all(elements))


def _counted(row: int, extents: Sequence[int]) -> tuple[int, ...]:
    """A row's number as one number for each dimension."""
    found = []
    for extent in reversed(extents):
        row, i = divmod(row, extent)
        found.append(i)
    return tuple(reversed(found))
