"""What a block of a Hopper kernel may ask for, as sums that the host can check: registers, shared memory, barriers.

Each `broken_...` gives the broken rule in one line, with the value and the limit, or None. Breaking one of them is no
error that the GPU reports: setmaxnreg waits for registers that never come free, a barrier for arrivals that never come,
and a swizzled tile at the wrong address is read as another.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lowlevel.catalog.entry import Config
    from lowlevel.problems.base import Problem

WARP, WARPGROUP = 32, 128
#: 32-bit registers of an SM, handed out to a thread in eights; what setmaxnreg takes (PTX ISA).
REGISTERS, REGISTER_UNIT, LEAST_REGISTERS, MOST_REGISTERS = 65536, 8, 24, 256
#: Bytes of a row of a tile, which the 128-byte swizzle spans, and of a box of an MN-major one: 64 rows of k.
ROW_BYTES, BOX_BYTES = 128, 8192
#: Where a tile with the 128-byte swizzle must begin in shared memory.
TILE_ALIGNMENT = 1024
#: mbarriers are 8 bytes, and count arrivals and bytes in 20 bits each.
MBARRIER, MOST_COUNTED = 8, (1 << 20) - 1
NAMED_BARRIERS = 16


def entry_registers(threads: int) -> int:
    """Registers that each thread has on entry of a block that is alone on its SM, compiled with
    `__launch_bounds__(threads, 1)`: the SM's, shared out evenly in eights, and 256 at most."""
    return min(MOST_REGISTERS, REGISTERS // threads // REGISTER_UNIT * REGISTER_UNIT)


def broken_trade(threads: int, given: int, taken: int) -> str | None:
    """setmaxnreg in a block of `threads`: one warpgroup goes down to `given` registers a thread, and the others up to
    `taken`. They wait until there are enough: if there never are, for ever. PTX ISA, 'setmaxnreg'."""
    groups = threads // WARPGROUP
    if threads % WARPGROUP or groups < 2:
        return f"{threads} threads are no whole warpgroups of {WARPGROUP}, one that gives registers and one that takes"
    for name, value in (("dec", given), ("inc", taken)):
        if value % REGISTER_UNIT or not LEAST_REGISTERS <= value <= MOST_REGISTERS:
            return f"setmaxnreg.{name} {value}: a multiple of {REGISTER_UNIT} from {LEAST_REGISTERS} to 256"
    entry = entry_registers(threads)
    if not given <= entry <= taken:
        return f"setmaxnreg.dec {given} and .inc {taken} must have the {entry} of the entry between them"
    asked = given + (groups - 1) * taken
    if asked > groups * entry:
        return (
            f"setmaxnreg: {given} + {groups - 1} x {taken} = {asked} registers, and {groups} warpgroups entered with "
            f"{groups * entry}"
        )
    return None


def operand_tiles(config: Config, problem: Problem) -> tuple[int, int]:
    """Bytes of a stage's tile of A and of B as TMA writes them: BM and BN rows of 128 bytes where rows run along k,
    else a box for each 64 of BM and BN or what is left."""
    along_k = (problem.layout[0] == "N", problem.layout[1] == "T")
    a, b = (
        ROW_BYTES * side if rows_run_along_k else BOX_BYTES * -(-side // 64)
        for side, rows_run_along_k in zip((config["BM"], config["BN"]), along_k, strict=True)
    )
    return a, b


def ring_bytes(stages: int, tiles: Sequence[int], staging: int = 0) -> int:
    """Shared memory of a ring: stages of a tile of each operand, what the epilogue stages, and two mbarriers a stage.
    tiles, staging: bytes."""
    return stages * (sum(tiles) + 2 * MBARRIER) + staging


def broken_tiles(tiles: Sequence[int], staging: int = 0) -> str | None:
    """A ring's tiles and what lies behind them, from a multiple of 1024 on. tiles: bytes of a stage's tile of each
    operand. staging: bytes of the epilogue's boxes."""
    for name, size in (*((f"tile {i}", size) for i, size in enumerate(tiles)), ("the staging", staging)):
        if size % TILE_ALIGNMENT:
            return f"{name} has {size} bytes: what follows would not begin at a multiple of {TILE_ALIGNMENT}"
    return None


def empty_arrivals(warpgroups: int, blocks: int = 1) -> int:
    """Arrivals that empty a stage: of each warp of the `warpgroups` that read it, in each of the `blocks` of a cluster
    that one block's copies reach."""
    return WARPGROUP // WARP * warpgroups * blocks


def broken_arrivals(count: int) -> str | None:
    """The arrivals that complete an mbarrier's phase. PTX ISA, 'mbarrier.init'."""
    return None if 1 <= count <= MOST_COUNTED else f"an mbarrier of {count} arrivals: 1 to {MOST_COUNTED}"


def broken_expected_bytes(count: int) -> str | None:
    """The bytes that one phase of an mbarrier expects of TMA. PTX ISA, 'Tracking asynchronous operations by the
    mbarrier object': the range of its tx-count."""
    if not 0 < count <= MOST_COUNTED:
        return f"an mbarrier that expects {count} bytes: 1 to {MOST_COUNTED}"
    return f"an mbarrier that expects {count} bytes: TMA brings multiples of 16" if count % 16 else None


def broken_named_barriers(used: Sequence[tuple[int, int]], block: int) -> str | None:
    """Named barriers of a kernel, (number, threads that meet there) each, in a block of so many threads: the first
    broken rule, or a number with two meanings. PTX ISA, 'bar'."""
    seen: dict[int, int] = {}
    for number, threads in used:
        if not 1 <= number < NAMED_BARRIERS:
            return f"named barrier {number}: 1 to {NAMED_BARRIERS - 1}, and 0 is __syncthreads'"
        if threads < WARP or threads % WARP:
            return f"named barrier {number} of {threads} threads: a multiple of {WARP}, whole warps"
        if threads > block:
            return f"named barrier {number} of {threads} threads, and the block has {block}: nobody would pass"
        if seen.setdefault(number, threads) != threads:
            return f"named barrier {number} is of {seen[number]} threads and of {threads}: one number, one count"
    return None
