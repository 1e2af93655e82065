"""A tensor map (TMA descriptor) as a specification and its rules, checked on the host.

The CUDA device encodes it. The rules are those of cuTensorMapEncodeTiled in the CUDA driver API manual, and, of where
boxes lie in shared memory, those of cp.async.bulk.tensor in the PTX ISA manual. Where a box may begin in the tensor is
what an H200 did (tests/fixtures/tma.json).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from lowlevel.dtypes import ELEMENTS
from lowlevel.errors import UsageError

#: swizzle name -> bytes that the innermost box dimension may span
SWIZZLES = {"none": None, "32B": 32, "64B": 64, "128B": 128}
#: swizzle name -> bytes of shared memory after which its pattern repeats. The pattern belongs to the address, so a box
#: that begins elsewhere is not laid out as its reader takes it.
REPEATS = {"none": 128, "32B": 256, "64B": 512, "128B": 1024}


@dataclass(frozen=True)
class TensorMap:
    """A tiled tensor map over row-major memory.

    element: a name in dtypes.ELEMENTS. shape: elements, outermost first (as numpy). strides: bytes of every
    dimension but the innermost, outermost first. box: elements fetched at once, outermost first.
    swizzle: none, 32B, 64B, 128B. l2_promotion: 0, 64, 128 or 256 bytes. Out-of-bounds elements read as zero, and
    element strides are 1: of the tensor's elements none is left out.
    """

    element: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: str = "none"
    l2_promotion: int = 128


def check_rules(spec: TensorMap, address: int) -> None:
    """Raises UsageError naming the first rule that the map breaks, with its value."""
    for rule in broken_rules(spec, address):
        raise UsageError(f"tensor map: {rule}")


def broken_rules(spec: TensorMap, address: int) -> Iterator[str]:
    """Every rule that the map breaks. Dimensions are numbered as the driver does: 0 is the innermost."""
    if spec.element not in ELEMENTS:
        yield f"element '{spec.element}' is unknown; known: {', '.join(ELEMENTS)}"
        return
    rank, size = len(spec.shape), ELEMENTS[spec.element].bytes
    if not 1 <= rank <= 5 or len(spec.strides) != rank - 1 or len(spec.box) != rank:
        yield f"rank {rank}, {len(spec.strides)} strides, {len(spec.box)} box sizes; rank is 1 to 5, strides one less"
        return
    if spec.swizzle not in SWIZZLES:
        yield f"swizzle '{spec.swizzle}' is unknown; known: {', '.join(SWIZZLES)}"
        return
    if spec.l2_promotion not in (0, 64, 128, 256):
        yield f"l2_promotion={spec.l2_promotion} is not 0, 64, 128 or 256"
    if address % 16 or address == 0:
        yield f"globalAddress={address:#x} is not a multiple of 16 bytes" if address else "globalAddress is null"
    for i, extent in enumerate(reversed(spec.shape)):
        if not 1 <= extent <= 2**32:
            yield f"globalDim[{i}]={extent} is not 1 to 2^32"
    for i, stride in enumerate(reversed(spec.strides)):
        if stride % 16 or not 0 < stride < 2**40:
            yield f"globalStrides[{i}]={stride} not a multiple of 16 below 2^40"
    strides = (*spec.strides, size)  # of every dimension
    for i, stride in enumerate(reversed(spec.strides)):
        over = strides[-1 - i] * spec.shape[-1 - i]
        if stride < over:
            yield f"globalStrides[{i}]={stride} is less than the {over} bytes that it strides over"
    for i, extent in enumerate(reversed(spec.box)):
        if not 1 <= extent <= 256:
            yield f"boxDim[{i}]={extent} is not 1 to 256"
    inner = spec.box[-1] * size
    if inner % 16:
        yield f"the box's inner row is {inner} bytes, not a multiple of 16"
    span = SWIZZLES[spec.swizzle]
    if span and inner > span:
        yield f"the box's inner row is {inner} bytes, more than the {span} that swizzle {spec.swizzle} spans"


def broken_offsets(spec: TensorMap, offsets: Iterable[int]) -> Iterator[str]:
    """Every one of these byte offsets, from a base that is a multiple of 1024, at which a box of the map may not lie in
    shared memory."""
    repeat = REPEATS[spec.swizzle]
    for offset in offsets:
        if offset % 128:
            yield f"a box at byte {offset} of shared memory, not a multiple of 128"
        elif offset % repeat:
            yield f"a box at byte {offset} of shared memory, not a multiple of {repeat}: swizzle {spec.swizzle} repeats"


def broken_coordinate(spec: TensorMap, x: int) -> str:
    """Why no box of the map is loaded from x on, the innermost coordinate in elements: empty if one is.

    Recorded on an H200: every load whose x was not a multiple of 16 bytes ended in an illegal instruction, whether its
    elements had 1, 2 or 4 bytes, and no other did. Kernels' coordinates are multiples of their tiles and keep the rule.
    """
    at = x * ELEMENTS[spec.element].bytes
    if at % 16 == 0:
        return ""
    return f"a box from byte {at} of a row on, not a multiple of 16: an H200 ends that load with an illegal instruction"
