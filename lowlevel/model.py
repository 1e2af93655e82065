"""A cost model of tiled matrix products: which configuration should be fast, before anything is measured.

It counts clocks of an SM. For each 32 bytes of k (16 elements of bf16, 8 of fp32) a block needs

    arithmetic      2 BM BN k / rate                    rate: FLOP a clock and SM that the instructions reach
    shared memory   (warps (WM + WN) + BM + BN) k s / 128    fragments out, copies in; s bytes an element
    L2              (BM + BN) k s / 64

and the three overlap, not quite: a step takes (arithmetic^4 + shared^4 + L2^4)^(1/4). A k-block of BK adds a barrier,
and waits for what of the memory's latency its STAGES and the SM's other blocks do not cover. A tile adds its first
loads and its stores. The busiest SM has ceil(tiles / SMs) tiles, as many at a time as occupancy allows; what it needs,
or what device memory needs for the traffic of all waves, is the time.

The exponent and the constants were fitted to a handful of measurements of mma.sync kernels on an H200, 256 x 128 and
128 x 128 tiles in bf16, and reproduce those to some 5 %. Of other GPUs and instructions the model knows data sheets. It
ranks; it does not predict. Power, which sets the clock of the large products, is not in it.

It knows nothing of clusters, of blocks that stay for several tiles, or of who stores while who multiplies. A kernel
that lives by these counts its clocks itself (`Kernel.clocks`), and is ranked by that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from lowlevel import hardware
from lowlevel.catalog import space
from lowlevel.catalog.entry import Config, Kernel
from lowlevel.dtypes import ELEMENTS, Type
from lowlevel.errors import UsageError
from lowlevel.hardware import Limits
from lowlevel.problems.gemm import Gemm

#: Bytes a clock: of an SM's shared memory, and of its port to the L2.
SHARED_BYTES, L2_BYTES = 128, 64
#: Clocks from a copy's start until its data is there, under load.
LATENCY = 1200
#: Clocks of a barrier of the block.
BARRIER = 20
#: Bytes a clock at which an SM stores its sums.
STORE_BYTES = 32
#: How the three units overlap: 1 would be one after the other, infinity perfectly.
OVERLAP = 4
#: Warps that an SM needs to keep its arithmetic busy, and what four of them reach.
WARPS, FOUR_WARPS = 8, 0.92
#: Rows of tiles that blocks take at a time.
GROUP = 8
#: FLOP a clock and SM of bf16's mma.sync where wgmma is faster: measured on an H200 with nothing but registers.
MMA_SYNC = {(9, 0): 2709}
#: Registers for addresses and counters, in the estimate without a compiler.
ADDRESSES = 40


@dataclass(frozen=True)
class Tile:
    """A configuration as the model sees it. wm, wn: a warp's share of BM x BN. threads: of a block. shared: bytes of a
    block. registers: of a thread."""

    bm: int
    bn: int
    bk: int
    wm: int
    wn: int
    stages: int
    kgroups: int
    threads: int
    shared: int
    registers: int


@dataclass(frozen=True)
class Estimate:
    """What the model says of a tile for a problem.

    places: blocks that the GPU holds at once. waves: tiles over places. tail: tiles over the places of all waves.
    microseconds, tflops: of the whole. bound: what the time is mostly made of. own: the kernel's own count of clocks;
    then tiles are those of a cluster, places are of clusters that stay, and bound is not known.
    """

    tile: Tile
    tiles: int
    occupancy: hardware.Occupancy
    waves: float
    tail: float
    microseconds: float
    tflops: float
    bound: str
    places: int
    own: bool = False


def tile_of(kernel: Kernel, config: Config, problem: Gemm, limits: Limits, registers: int | None = None) -> Tile:
    """The tile of a configuration; `registers` from the compiler, else estimated.

    UsageError for a kernel whose configuration has no BM, BN and BK.
    """
    if not {"BM", "BN", "BK"} <= set(config):
        raise UsageError(f"{kernel.label} has no tile of shared memory: the model counts BM, BN and BK")
    threads = space.block_size(kernel, config, problem, limits)
    kgroups = config.get("KGROUPS", 1)
    wm, wn = warp_tile(config, threads_with_sums(kernel, config, threads))
    shared = space.shared_bytes(kernel, config, problem, limits)
    if not shared:  # a static array, one of each operand
        shared = (config["BM"] + config["BN"]) * config["BK"] * ELEMENTS[problem.type.operand].bytes
    if registers is None:
        registers = estimated_registers(wm, wn, threads, config.get("MIN_BLOCKS", 1), problem.type, limits)
    numbers = (config["BM"], config["BN"], config["BK"], wm, wn, config.get("STAGES", 1), kgroups)
    return Tile(*numbers, threads, shared, registers)


def threads_with_sums(kernel: Kernel, config: Config, threads: int) -> int:
    """Threads of a block, of `threads`, that share a tile's sums. Others copy, take turns or have another part of k.
    The owner of the last element is the last of them; where nobody owns elements, all do."""
    if kernel.owner:
        return kernel.owner(config, config["BM"] - 1, config["BN"] - 1) + 1
    return threads // config.get("KGROUPS", 1)


def warp_tile(config: Config, threads: int) -> tuple[int, int]:
    """WM and WN; where the configuration has none, the share of a warp of `threads`, as square as it can be."""
    if "WM" in config:
        return config["WM"], config["WN"]
    share = max(1, 32 * config["BM"] * config["BN"] // threads)
    heights = [h for h in range(1, math.isqrt(share) + 1) if share % h == 0]
    return heights[-1], share // heights[-1]


def estimated_registers(wm: int, wn: int, threads: int, min_blocks: int, type_: Type, limits: Limits) -> int:
    """Sums, two sets of fragments, and addresses; what a block of `min_blocks` an SM can have at most."""
    sums = wm * wn // 32
    if type_.unit == "fp32":
        needed = sums + round(4 * math.sqrt(sums))
    else:
        needed = space.mma_registers({"WM": wm, "WN": wn}, type_)
    warps = math.ceil(threads * min_blocks / 32 / 4)  # of a quarter of the SM, which has a quarter of the registers
    most = limits.registers_per_sm // 4 // (32 * warps) // 8 * 8
    return max(16, min(needed + ADDRESSES, space.MOST_REGISTERS, most))


def rate(kernel: Kernel, type_: Type, limits: Limits) -> float:
    """FLOP a clock and SM of the kernel's instructions. UsageError where the unit does not exist."""
    found = hardware.flop_per_clock(limits.capability, type_.unit)
    if found is None:
        raise UsageError(f"{limits.name} has no rate for {type_.name} in the table")
    asynchronous = any(arch.endswith("a") for arch in kernel.archs)
    if type_.unit == "fp32" or asynchronous or limits.capability not in MMA_SYNC:
        return found
    share = MMA_SYNC[limits.capability] / hardware.flop_per_clock(limits.capability, "bf16")
    return found * share


def estimate(tile: Tile, problem: Gemm, limits: Limits, flop_per_clock: float) -> Estimate:
    """The model's time for a problem. UsageError when an SM holds no such block."""
    held = hardware.occupancy(limits, tile.threads, tile.registers, tile.shared)
    if held.blocks_per_sm < 1:
        raise UsageError(f"an SM of {limits.name} holds no block of {tile.bm}x{tile.bn}x{tile.bk}: {held.limited_by}")
    tiles = math.ceil(problem.m / tile.bm) * math.ceil(problem.n / tile.bn)
    at_once = held.blocks_per_sm * limits.sms
    rounds, rest = divmod(math.ceil(tiles / limits.sms), held.blocks_per_sm)
    clocks = rounds * round_clocks(tile, problem, held.blocks_per_sm, flop_per_clock)
    clocks += round_clocks(tile, problem, rest, flop_per_clock) if rest else 0.0
    on_sm = clocks / limits.sm_clock_mhz
    in_memory = memory_bytes(tile, problem, limits, at_once) / hardware.bandwidth(limits) * 1e6
    microseconds = max(on_sm, in_memory)
    return Estimate(
        tile,
        tiles,
        held,
        tiles / at_once,
        tiles / (math.ceil(tiles / at_once) * at_once),
        microseconds,
        problem.flops / microseconds / 1e6,
        "device memory"
        if in_memory > on_sm
        else bound_of(tile, problem, min(held.blocks_per_sm, tiles), flop_per_clock),
        at_once,
    )


def estimate_of(kernel: Kernel, config: Config, tile: Tile, problem: Gemm, limits: Limits) -> Estimate:
    """By the kernel's own count of clocks, at the GPU's highest, where it has one; else by the model."""
    if not kernel.clocks:
        return estimate(tile, problem, limits, rate(kernel, problem.type, limits))
    held = hardware.occupancy(limits, tile.threads, tile.registers, tile.shared)
    tiles, places = kernel.waves(config, problem, limits)
    microseconds = kernel.clocks(config, problem, limits) / limits.sm_clock_mhz
    tail = tiles / (math.ceil(tiles / places) * places)
    tflops = problem.flops / microseconds / 1e6
    return Estimate(tile, tiles, held, tiles / places, tail, microseconds, tflops, "", places, own=True)


def step_clocks(tile: Tile, type_: Type, warps: int, flop_per_clock: float) -> dict[str, float]:
    """Clocks that 32 bytes of k cost a block in each unit, when `warps` run on its SM."""
    k_bytes = 32
    k = k_bytes // ELEMENTS[type_.operand].bytes
    warps_of_tile = tile.bm * tile.bn / (tile.wm * tile.wn)
    reached = 1.0 if warps >= WARPS else FOUR_WARPS if warps >= WARPS // 2 else FOUR_WARPS * warps / (WARPS // 2)
    return {
        "arithmetic": 2 * tile.bm * tile.bn * k / (flop_per_clock * reached),
        "shared memory": (warps_of_tile * (tile.wm + tile.wn) + tile.bm + tile.bn) * k_bytes / SHARED_BYTES,
        "L2": (tile.bm + tile.bn) * k_bytes / L2_BYTES,
    }


def round_clocks(tile: Tile, problem: Gemm, blocks: int, flop_per_clock: float) -> float:
    """Clocks of an SM for `blocks` tiles at a time, each from its first load to its last store."""
    loop, ends = _loop_and_ends(tile, problem, blocks, flop_per_clock)
    return loop + ends


def _loop_and_ends(tile: Tile, problem: Gemm, blocks: int, flop_per_clock: float) -> tuple[float, float]:
    units = step_clocks(tile, problem.type, blocks * tile.threads // 32, flop_per_clock)
    step = sum(clocks**OVERLAP for clocks in units.values()) ** (1 / OVERLAP)
    element = ELEMENTS[problem.type.operand].bytes
    k_block = step * tile.bk * element / 32
    covered = max(0.0, tile.stages - 1.5) * blocks * k_block + (blocks - 1) * k_block
    wait = max(0.0, LATENCY - covered)
    loop = math.ceil(problem.k / tile.bk) * (blocks * k_block + wait + BARRIER)
    ahead = min(tile.stages - 1, math.ceil(problem.k / tile.bk))
    first = LATENCY + ahead * (tile.bm + tile.bn) * tile.bk * element / L2_BYTES
    last = tile.bm * tile.bn * ELEMENTS[problem.type.output].bytes / STORE_BYTES
    joined = 2 * 4 * tile.bm * tile.bn * (tile.kgroups - 1) / SHARED_BYTES
    return loop, first + last + joined


def bound_of(tile: Tile, problem: Gemm, blocks: int, flop_per_clock: float) -> str:
    """`arithmetic`, `shared memory` or `L2`, whichever unit a step needs longest; `latency` where the ends of a tile
    and the waits in its loop are more than that unit's work."""
    units = step_clocks(tile, problem.type, blocks * tile.threads // 32, flop_per_clock)
    longest = max(units, key=units.__getitem__)
    work = units[longest] * blocks * math.ceil(problem.k * ELEMENTS[problem.type.operand].bytes / 32)
    return longest if 2 * work > round_clocks(tile, problem, blocks, flop_per_clock) else "latency"


def memory_bytes(tile: Tile, problem: Gemm, limits: Limits, at_once: int) -> float:
    """Bytes of device memory: each operand once where both lie in the L2, else what each wave of blocks reads.

    The blocks of a wave are GROUP rows of tiles by as many columns as it takes.
    """
    element = ELEMENTS[problem.type.operand].bytes
    operands = (problem.m + problem.n) * problem.k * element
    written = problem.m * problem.n * ELEMENTS[problem.type.output].bytes
    if operands <= limits.l2_bytes:
        return operands + written
    tiles_m, tiles_n = math.ceil(problem.m / tile.bm), math.ceil(problem.n / tile.bn)
    wave = min(at_once, tiles_m * tiles_n)
    rows = min(tiles_m, max(GROUP, math.ceil(wave / tiles_n)))
    columns = min(tiles_n, math.ceil(wave / rows))
    waves = math.ceil(tiles_m * tiles_n / wave)
    read = waves * (rows * tile.bm + columns * tile.bn) * problem.k * element
    return max(operands, read) + written


def best(kernel: Kernel, configs: Sequence[Config], problem: Gemm, limits: Limits) -> Config:
    """The configuration that the model takes; the first of equals, and of those that no SM holds."""
    ranked = rank(kernel, configs, problem, limits)
    return ranked[0][0] if ranked else configs[0]


def rank(kernel: Kernel, configs: Sequence[Config], problem: Gemm, limits: Limits) -> list[tuple[Config, Estimate]]:
    """The configurations that an SM holds, the shortest time first, by the kernel's own count where it has one."""
    found = []
    for config in configs:
        tile = tile_of(kernel, config, problem, limits)
        if hardware.occupancy(limits, tile.threads, tile.registers, tile.shared).blocks_per_sm:
            found.append((config, estimate_of(kernel, config, tile, problem, limits)))
    return sorted(found, key=lambda item: item[1].microseconds)
