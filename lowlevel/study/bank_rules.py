"""How the hardware groups the lanes of one access of shared memory: candidates, and the ones that fit what was counted.

A group takes as many passes as one bank has different words for it; an access takes the sum of its groups'. That 32
lanes of 4 bytes are one group is documented (CUDA C++ Programming Guide, 'Shared Memory'), and that ldmatrix reads its
matrices of 8 rows one by one; how wider accesses are split is not. tests/fixtures/banks.json has accesses that were
counted on an H200: wide loads join neighbouring groups whose lanes share addresses in pairs, wide stores do not.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence

LANES, BANKS, BANK_BYTES = 32, 32, 4

#: A byte address a lane; None where it takes no part.
Addresses = Sequence["int | None"]
#: (addresses of 32 lanes, bytes a lane) -> groups of lanes that are served together.
Rule = Callable[[Addresses, int], list[list[int]]]


def words(address: int, width: int) -> range:
    """The words that an access of `width` bytes touches."""
    return range(address // BANK_BYTES, (address + width - 1) // BANK_BYTES + 1)


def passes(lanes: Sequence[int], addresses: Addresses, width: int) -> int:
    """Different words of the bank that has most of them."""
    wanted = {word for lane in lanes for word in words(addresses[lane], width)}
    banks = [0] * BANKS
    for word in wanted:
        banks[word % BANKS] += 1
    return max(banks)


def whole(addresses: Addresses, _width: int) -> list[list[int]]:
    """All lanes together."""
    return [_active(range(LANES), addresses)]


def fixed(addresses: Addresses, width: int) -> list[list[int]]:
    """Lanes by their numbers, as many as want 128 bytes: halves of a warp for 8 bytes, quarters for 16."""
    return _blocks(addresses, 128 // width)


def halves(addresses: Addresses, _width: int) -> list[list[int]]:
    """Lanes 0 .. 15, then 16 .. 31, whatever the width."""
    return _blocks(addresses, 16)


def paired(addresses: Addresses, width: int) -> list[list[int]]:
    """`fixed`, but two neighbouring groups are one where lanes share addresses in pairs: each lane with the next one,
    or each with the next but one, in both groups."""
    groups = _blocks(addresses, 128 // width)
    joined: list[list[int]] = []
    for first, second in itertools.zip_longest(groups[::2], groups[1::2], fillvalue=[]):
        both = first + second
        shared = any(all(addresses[lane ^ step] in (None, addresses[lane]) for lane in both) for step in (1, 2))
        joined += [both] if shared else [first, second]
    return joined


def packed(addresses: Addresses, width: int) -> list[list[int]]:
    """`fixed`, but a group is served with the one before where that takes no pass more."""
    joined: list[list[int]] = []
    for group in _blocks(addresses, 128 // width):
        if not group:
            continue
        before = joined[-1] if joined else []
        alone = max(passes(lanes, addresses, width) for lanes in (before, group)) if before else 0
        if before and passes(before + group, addresses, width) <= alone:
            joined[-1] = before + group
        else:
            joined.append(group)
    return joined


def fused(addresses: Addresses, width: int) -> list[list[int]]:
    """`packed`, but only within a half of the warp."""
    first = [a if lane < 16 else None for lane, a in enumerate(addresses)]
    second = [a if lane >= 16 else None for lane, a in enumerate(addresses)]
    return packed(first, width) + packed(second, width)


CANDIDATES: dict[str, Rule] = {rule.__name__: rule for rule in (whole, fixed, halves, paired, packed, fused)}

#: What each access does, of the candidates.
RULE: Mapping[str, Rule] = {
    "ld.4": whole,
    "ld.8": paired,
    "ld.16": paired,
    "st.4": whole,
    "st.8": fixed,
    "st.16": fixed,
    "ldmatrix.x1": fixed,
    "ldmatrix.x2": fixed,
    "ldmatrix.x4": fixed,
}


def _blocks(addresses: Addresses, size: int) -> list[list[int]]:
    return [_active(range(first, first + size), addresses) for first in range(0, LANES, size)]


def _active(lanes: Sequence[int], addresses: Addresses) -> list[int]:
    return [lane for lane in lanes if addresses[lane] is not None]
