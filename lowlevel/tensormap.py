"""A tensor map (TMA descriptor) as a specification and its rules, checked on the host.

The CUDA device encodes it. The rules are those of cuTensorMapEncodeTiled in the CUDA driver API manual.
"""

from __future__ import annotations

from dataclasses import dataclass

#: swizzle name -> bytes that the innermost box dimension may span
SWIZZLES = {"none": None, "32B": 32, "64B": 64, "128B": 128}


@dataclass(frozen=True)
class TensorMap:
    """A tiled tensor map over row-major memory.

    element: a name in dtypes.ELEMENTS. shape: elements, outermost first (as numpy). strides: bytes of every
    dimension but the innermost, outermost first. box: elements fetched at once, outermost first.
    swizzle: none, 32B, 64B, 128B. l2_promotion: 0, 64, 128 or 256 bytes. Out-of-bounds elements read as zero.
    """

    element: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: str = "none"
    l2_promotion: int = 128
