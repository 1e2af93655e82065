"""What a Hopper kernel's configuration must keep, checked before anything is compiled or launched.

Each check is a pure function that gives the broken rule in one line, with the value and the limit, or None. Breaking
one of them is no error that the GPU reports: setmaxnreg waits for registers that never come free, a barrier for
arrivals that never come, and a swizzled tile at the wrong address is read as another.
"""

from __future__ import annotations

from collections.abc import Sequence

WARP, WARPGROUP = 32, 128
#: 32-bit registers of an SM, handed out to a thread in eights.
REGISTERS, REGISTER_UNIT = 65536, 8
#: Bytes of shared memory that a block of sm_90 can have, and where a tile with the 128-byte swizzle must begin.
SHARED, TILE_ALIGNMENT = 232448, 1024
#: mbarriers are 8 bytes, and count arrivals and bytes in 20 bits each.
MBARRIER, COUNT_BITS = 8, 20
NAMED_BARRIERS = 16


def entry_registers(threads: int) -> int:
    """Registers that each thread of a block has on entry, compiled with `__launch_bounds__(threads, 1)`: the SM's,
    shared out evenly in eights, and 256 at most."""
    return min(256, REGISTERS // threads // REGISTER_UNIT * REGISTER_UNIT)


def registers(threads: int, given: int, taken: int, givers: int = 1, entry: int | None = None) -> str | None:
    """setmaxnreg in a block of `threads`: `givers` warpgroups go down to `given` registers a thread, the others up to
    `taken`. entry: what a thread has before, `entry_registers` if None. PTX ISA, 'setmaxnreg'."""
    if threads < WARPGROUP or threads % WARPGROUP:
        return f"{threads} threads are no whole warpgroups of {WARPGROUP}, which setmaxnreg needs"
    groups = threads // WARPGROUP
    if not 0 < givers < groups:
        return f"{givers} of {groups} warpgroups give registers: at least one must give and one take"
    entry = entry_registers(threads) if entry is None else entry
    if entry * threads > REGISTERS:
        return f"{threads} threads of {entry} registers are {entry * threads}, and an SM has {REGISTERS}"
    for name, value in (("dec", given), ("inc", taken)):
        if value % REGISTER_UNIT or not 24 <= value <= 256:
            return f"setmaxnreg.{name} {value}: a multiple of {REGISTER_UNIT} from 24 to 256"
    if not given <= entry <= taken:
        return f"setmaxnreg.dec {given} and .inc {taken} must have the {entry} of the entry between them"
    takers = groups - givers
    if givers * given + takers * taken > groups * entry:
        return (
            f"{givers} x {given} + {takers} x {taken} = {givers * given + takers * taken} registers, and {groups} "
            f"warpgroups entered with {groups * entry}: setmaxnreg.inc would wait for ever"
        )
    return None


def ring_bytes(stages: int, tiles: Sequence[int], staging: int = 0, barriers: int = 0) -> int:
    """Shared memory of a ring: `stages` of one tile of each operand, then what the epilogue stages, then barriers."""
    return stages * sum(tiles) + staging + MBARRIER * barriers


def ring(stages: int, tiles: Sequence[int], staging: int = 0, barriers: int = 0, limit: int = SHARED) -> str | None:
    """A ring in shared memory that begins at a multiple of 1024. tiles: bytes of a stage's tile of each operand.
    staging: bytes of the epilogue's buffers. barriers: how many mbarriers. limit: bytes that a block can have."""
    if stages < 1:
        return f"{stages} stages: at least 1"
    for name, size in (*((f"tile {i}", size) for i, size in enumerate(tiles)), ("the staging", staging)):
        if size < 0 or size % TILE_ALIGNMENT:
            return f"{name} has {size} bytes: what follows would not begin at a multiple of {TILE_ALIGNMENT}"
    total = ring_bytes(stages, tiles, staging, barriers)
    if total > limit:
        parts = " + ".join(map(str, tiles))
        return (
            f"{stages} stages of {parts} bytes, {staging} of staging and {barriers} barriers are {total} bytes of "
            f"shared memory, and a block has {limit}"
        )
    return None


def named_barrier(number: int, threads: int, block: int = 1024) -> str | None:
    """A named barrier that `threads` of a block's meet at. PTX ISA, 'bar': 0 is __syncthreads'."""
    if not 1 <= number < NAMED_BARRIERS:
        return f"named barrier {number}: 1 to {NAMED_BARRIERS - 1}, and 0 is __syncthreads'"
    if threads < WARP or threads % WARP:
        return f"named barrier {number} of {threads} threads: a multiple of {WARP}, whole warps"
    if threads > block:
        return f"named barrier {number} of {threads} threads, and the block has {block}: nobody would pass"
    return None


def named_barriers(used: Sequence[tuple[int, int]], block: int = 1024) -> str | None:
    """Barriers of one kernel, (number, threads) each: the first broken rule, or a number with two meanings."""
    seen: dict[int, int] = {}
    for number, threads in used:
        if broken := named_barrier(number, threads, block):
            return broken
        if seen.setdefault(number, threads) != threads:
            return f"named barrier {number} is of {seen[number]} threads and of {threads}: one number, one count"
    return None


def arrivals(count: int) -> str | None:
    """The arrivals that complete an mbarrier's phase. PTX ISA, 'mbarrier.init'."""
    most = (1 << COUNT_BITS) - 1
    return None if 1 <= count <= most else f"an mbarrier of {count} arrivals: 1 to {most}"


def expected_bytes(count: int) -> str | None:
    """The bytes that one phase of an mbarrier expects. PTX ISA, 'Tracking asynchronous operations by the mbarrier
    object': the range of its tx-count. TMA moves multiples of 16."""
    most = (1 << COUNT_BITS) - 1
    if not 0 < count <= most:
        return f"an mbarrier that expects {count} bytes: 1 to {most}"
    return f"an mbarrier that expects {count} bytes: TMA brings multiples of 16" if count % 16 else None
