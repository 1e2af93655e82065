"""The swizzles that TMA writes and wgmma reads: 16-byte chunks of shared memory, exchanged within a row.

CUDA C++ Programming Guide, 'Swizzle Modes'; PTX ISA, 'Swizzling Modes'. The place of a chunk in its row is XORed with
bits 7 and up of the address: with where the chunk lies in shared memory, not with its row in a tile. So tiles agree
with a pattern counted from their first row only when they begin where the pattern does.
"""

from __future__ import annotations

CHUNK = 16

#: Swizzle -> bytes of a row, within which chunks change places. TMA calls a swizzle by them.
SPANS = {"none": 0, "32B": 32, "64B": 64, "128B": 128}

#: Swizzle -> bytes after which the pattern begins again: it does at every multiple of them.
PATTERNS = {name: 8 * span for name, span in SPANS.items()}


def swizzled(address: int, swizzle: str, first: int = 0) -> int:
    """Where the byte lies that would lie at `address` without a swizzle. first: subtracted from the number of the
    128-byte line (a descriptor's base offset)."""
    span = SPANS[swizzle]
    if not span:
        return address
    return address ^ (address // 128 - first) % (span // CHUNK) * CHUNK


def formula(swizzle: str) -> str:
    """The same in words of C."""
    span = SPANS[swizzle]
    return f"address ^ address / 128 % {span // CHUNK} * {CHUNK}" if span else "address"
