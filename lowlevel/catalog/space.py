"""Tuning spaces: which configurations of a kernel there are to try, and the host's rules for them.

Everything here is a pure function of numbers: what it refuses would not compile, would not launch, or would keep its
sums outside the registers.
"""

from __future__ import annotations

import collections
import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from lowlevel.catalog import fast, hopper
from lowlevel.catalog.rules import ceil_div
from lowlevel.dtypes import ELEMENTS, Type

if TYPE_CHECKING:
    from lowlevel.catalog.entry import Config, Kernel
    from lowlevel.hardware import Limits
    from lowlevel.problems.base import Problem

#: Registers of a thread; the instruction's field for one has no room for more.
MOST_REGISTERS = 255
#: What sums and fragments leave to addresses and counters, at the least: the tensor-core kernels here take 36 to 54,
#: and spill where a bound leaves them 16.
ADDRESSES = 24
#: The same of `gemm/25_fast` and `gemm/26_fp8`, whose consumers only wait, multiply and store; A transposed takes more.
FAST_ADDRESSES, FAST_TRANSPOSED = 20, 4


def points(kernel: Kernel, problem: Problem, limits: Limits) -> list[Config]:
    """The configurations that can be tried for a problem on a GPU: the entry's own, then the products of its space that
    the host's rules admit, each once."""
    listed = [config for config in kernel.configs_of(problem.type) if not fits(kernel, config, problem, limits)]
    others = [config for config, broken in weighed(kernel, problem, limits) if not broken]
    return listed + [config for config in others if config not in listed]


def tried(kernel: Kernel, problem: Problem, limits: Limits) -> list[Config]:
    """The points that are worth weighing against each other, the entry's own first. A kernel's own count of clocks sees
    no use in stages left out: by it only the deepest of the others are weighed."""
    found = points(kernel, problem, limits)
    if not kernel.clocks:
        return found
    listed = [config for config in found if config in kernel.configs_of(problem.type)]
    return listed + [config for config in deepest(found) if config not in listed]


def deepest(configs: Iterable[Config]) -> list[Config]:
    """Of configurations that differ in STAGES alone, that with the most, in the place of the first."""
    found: dict[tuple, Config] = {}
    for config in configs:
        others = tuple(value for name, value in config.items() if name != "STAGES")
        if others not in found or found[others]["STAGES"] < config["STAGES"]:
            found[others] = config
    return list(found.values())


def weighed(kernel: Kernel, problem: Problem, limits: Limits) -> Iterator[tuple[Config, str | None]]:
    """Products of the space, each with the first rule that it breaks. Other values of optional numbers are not looked
    at where what is optional is refused: they would only multiply what is."""
    for config in products(kernel):
        broken = refusal(kernel, config, problem, limits)
        yield config, broken
        for other in varied(kernel, config) if not broken else ():
            yield other, refusal(kernel, other, problem, limits)


def products(kernel: Kernel) -> list[Config]:
    """Every combination of the space's values, in the order of the entry's numbers, optional ones at their values; none
    without a space."""
    if not kernel.space:
        return []
    numbers, space = tuple(kernel.configs[0]), {**kernel.space, **{name: (n,) for name, n in kernel.optional.items()}}
    values = [space.get(name, (kernel.configs[0][name],)) for name in numbers]
    return [dict(zip(numbers, point, strict=True)) for point in itertools.product(*values)]


def varied(kernel: Kernel, config: Config) -> list[Config]:
    """A product with the space's other values of its optional numbers."""
    values = [kernel.space.get(name, (n,)) for name, n in kernel.optional.items()]
    others = [{**config, **dict(zip(kernel.optional, point, strict=True))} for point in itertools.product(*values)]
    return [other for other in others if other != config]


def refused(kernel: Kernel, problem: Problem, limits: Limits) -> Mapping[str, int]:
    """Rule -> how many products of the space break it first."""
    return collections.Counter(broken for _, broken in weighed(kernel, problem, limits) if broken)


def refusal(kernel: Kernel, config: Config, problem: Problem, limits: Limits) -> str | None:
    """The first rule that a configuration breaks, in a line, or None: the kernel's own, then the GPU's."""
    if config.get("STAGES", 2) < 2:
        return "fewer than 2 stages: nothing is copied while a tile is multiplied"
    own = kernel.admits(config, problem, limits) if kernel.admits else None
    return own or fits(kernel, config, problem, limits)


def fits(kernel: Kernel, config: Config, problem: Problem, limits: Limits) -> str | None:
    """What a GPU refuses of a launch: too many threads or too much shared memory in a block."""
    threads, shared = block_size(kernel, config, problem, limits), shared_bytes(kernel, config, problem, limits)
    if not 32 <= threads <= limits.threads_per_block:
        return f"a block of more than {limits.threads_per_block} threads, or of none"
    if shared > limits.shared_per_block_optin:
        return f"more than the {limits.shared_per_block_optin} bytes of shared memory that a block can have"
    return None


def block_size(kernel: Kernel, config: Config, problem: Problem, limits: Limits) -> int:
    """Threads of a block."""
    block = kernel.launch.block
    block = block(config, problem, limits) if callable(block) else block
    if isinstance(block, tuple):
        return block[0] * block[1] * block[2]
    return int(block)


def shared_bytes(kernel: Kernel, config: Config, problem: Problem, limits: Limits) -> int:
    """Dynamic shared memory of a block."""
    shared = kernel.launch.shared
    return int(shared(config, problem, limits) if callable(shared) else shared)


def over_registers(needed: int, threads: int, min_blocks: int, limits: Limits) -> str | None:
    """Refuses sums and fragments, `needed` registers of a thread, that leave no room for addresses, in a block of
    `threads` of which an SM is to hold `min_blocks`."""
    most = min(MOST_REGISTERS, limits.registers_per_sm // (threads * min_blocks) // 8 * 8)
    if needed + ADDRESSES > most:
        return "more sums and fragments than the registers hold"
    return None


def mma_registers(config: Config, type_: Type, ahead: int = 2) -> int:
    """Sums and fragments of a thread whose warp multiplies WM x WN by mma.sync, with `ahead` sets of fragments.

    A warp's 32 threads hold an element of C each in a register (two of fp16), and 16 x 32 bytes of A in four.
    """
    sums = config["WM"] * config["WN"] // 32 // (2 if type_.accumulate == "fp16" else 1)
    return sums + ahead * (config["WM"] + config["WN"]) // 4


def admits_mma_tile(config: Config, problem: Problem, limits: Limits) -> str | None:
    """`gemm/14_wide`'s static_asserts, and its registers: a ring of tiles whose rows lie as in global memory, copied by
    cp.async a chunk of 16 bytes a thread, swizzled, and read by ldmatrix into warps of WM x WN."""
    bm, bn, bk, wm, wn = (config[name] for name in ("BM", "BN", "BK", "WM", "WN"))
    if config.get("PDL", 0) and limits.capability < (9, 0):
        return "programmatic launch, which begins with sm_90"
    if bm % wm or bn % wn:
        return "the tile is not whole warp tiles"
    if wm % 16 or wn % 32 or 64 % wm or 64 % wn:
        return "a warp tile has no side of 16 (WN: 32) to 64 that divides 64"
    threads = 32 * (bm // wm) * (bn // wn)
    if threads > limits.threads_per_block:
        return "a block of more threads than there may be"
    element = ELEMENTS[problem.type.operand].bytes
    if bk * element % 64:
        return "BK is not an even number of steps of mma.sync"
    along_k = (problem.layout[0] == "N", problem.layout[1] == "T")
    for side, rows_run_along_k in zip((bm, bn), along_k, strict=True):
        rows, length = (side, bk) if rows_run_along_k else (bk, side)
        if broken := _copied_in_passes(rows, length * element, threads, rows_run_along_k):
            return broken
    if config["STAGES"] * (bm + bn) * bk * element < bm * bn * ELEMENTS[problem.type.output].bytes:
        return "the ring is smaller than C's tile, which takes its place"
    return over_registers(mma_registers(config, problem.type), threads, config.get("MIN_BLOCKS", 1), limits)


def _copied_in_passes(rows: int, row_bytes: int, threads: int, along_k: bool) -> str | None:
    """A row's chunks are a power of two of threads, and a pass whole rows, eight or a multiple."""
    if (row_bytes > 128 and along_k) or (row_bytes % 128 and not along_k):
        return "a row of a tile is over 128 bytes of k, or no multiple of 128 bytes of m or n"
    chunks = row_bytes // 16
    pass_rows = threads // chunks
    if threads % chunks or pass_rows % 8 or rows % pass_rows:
        return "the threads do not copy a tile in whole passes"
    return None


def admits_fp32_warp_tile(config: Config, problem: Problem, limits: Limits) -> str | None:  # noqa: ARG001
    """`gemm/08_warp_tile`'s static_asserts, whole passes of its copies, all started before a block's last k; and no
    spills."""
    bm, bn, bk, groups = (config[name] for name in ("BM", "BN", "BK", "KGROUPS"))
    if bm % config["WM"] or bn % config["WN"]:
        return "the tile is not whole warp tiles"
    threads = 32 * (bm // config["WM"]) * (bn // config["WN"]) * groups
    if threads > limits.threads_per_block:
        return "a block of more threads than there may be"
    k_slice = bk // groups
    if bk % 8 or k_slice % 2:
        return "BK is no even number of k for each group of warps"
    if bm % (threads // 8) or bk * bn % (4 * threads) or 4 * threads % bn:
        return "the threads do not copy a tile in whole passes"
    if k_slice > 32:
        return "more than 32 k of a block for a warp, which is unrolled and spills"
    copies = bm // (threads // 8) * bk // 8 + bk // (4 * threads // bn)
    if copies > 2 * (k_slice - 1):
        return "a k-block is too short to start its copies in"
    return over_registers(config["WM"] * config["WN"] // 32 + 2 * (16 + 8), threads, 1, limits)


def admits_fast(config: Config, problem: Problem, limits: Limits) -> str | None:
    """The fast family's static_asserts, its barriers, and its registers."""
    if broken := _broken_slices(config, problem, limits) or _pointless_snake(config, problem, limits):
        return broken
    consumers, sharers, overlap = config["CONSUMERS"], fast.sharers(config), config["OVERLAP"]
    row = config["BK"] * ELEMENTS[problem.type.operand].bytes
    if row != hopper.ROW_BYTES or config["BN"] % 16 or config["BN"] > 256:
        return "BK is not 128 bytes, or BN no multiple of 16 up to 256: what wgmma and the swizzle take"
    if config["BM"] not in (64 * sharers, 128 * sharers):
        return "BM is not one or two blocks of 64 rows for each warpgroup of consumers"
    if config["PINGPONG"] and (consumers != 2 or overlap):
        return "PINGPONG takes two consumers, which hide each other's stores: OVERLAP=0"
    if overlap == 2 and config["BM"] != 128 * sharers:
        return "OVERLAP=2 stores one block of 64 rows while another is multiplied: two a warpgroup"
    if config["CLUSTER_M"] * config["CLUSTER_N"] > 2:
        return "a cluster of more than two: a block has one peer at most"
    if config["GPC"] and fast.cluster_size(config) != 2:
        return "GPC counts clusters of two"
    if config["GPC"] == 2 and not fast.clusters_launched(config, problem, limits) % fast.COLUMN:
        return "GPC=2 with whole columns of clusters, as GPC=1 has"
    return (
        hopper.broken_tiles(hopper.operand_tiles(config, problem), fast.bytes_of_boxes(config))
        or hopper.broken_expected_bytes(fast.tile_bytes(config, problem))
        or hopper.broken_arrivals(hopper.empty_arrivals(sharers, fast.cluster_size(config)))
        or hopper.broken_named_barriers(fast.named_barriers(config), fast.fast_threads(config, problem, limits))
        or _over_fast_registers(config, problem, limits)
    )


def _broken_slices(config: Config, problem: Problem, limits: Limits) -> str | None:
    """Slices of k meet in the kernel's plain way to store, and are for tiles too few to keep all clusters busy."""
    splits = config["SPLITS"]
    if splits == 1:
        return None
    if config["OVERLAP"] or config.get("PROMOTE"):
        return "SPLITS: slices meet with all their sums at once, OVERLAP=0 and PROMOTE=0"
    if config["GROUP"] != 8:
        return "SPLITS are for few tiles, whose order matters little: GROUP=8"
    if splits > fast.k_blocks(config, problem):
        return "SPLITS are more than there are k-blocks"
    tiles, clusters = fast.cluster_tiles(config, problem), fast.clusters_at_once(config, limits)
    if tiles > 2 * clusters or ceil_div(tiles * splits, clusters) >= splits * ceil_div(tiles, clusters):
        return "SPLITS leave the busiest cluster as much to multiply, or there are over two tiles a cluster anyway"
    return None


def _pointless_snake(config: Config, problem: Problem, limits: Limits) -> str | None:
    """Where no wave has one before it that it shares an operand with, going back changes nothing."""
    if config["SNAKE"] and config["SPLITS"] > 1:
        return "SNAKE is for whole tiles: slices of one share no operand"
    if config["SNAKE"] and fast.cluster_tiles(config, problem) <= fast.clusters_at_once(config, limits):
        return "SNAKE with a single wave of tiles, which has none before it"
    return None


def admits_fp8(config: Config, problem: Problem, limits: Limits) -> str | None:
    """The same, and what `gemm/26_fp8` asserts of promoted sums."""
    if promote := config["PROMOTE"]:
        if promote % config["BK"] or promote // config["BK"] > config["STAGES"]:
            return "PROMOTE is not a whole number of k-blocks that the ring holds"
        if config["CONSUMERS"] != 2 or config["PINGPONG"] or config["OVERLAP"]:
            return "PROMOTE takes two consumers that share a tile, and OVERLAP=0"
    return admits_fast(config, problem, limits)


def _over_fast_registers(config: Config, problem: Problem, limits: Limits) -> str | None:
    """Sums, and what is packed of them: all of a tile with OVERLAP=1, else a box."""
    sums, threads = fast.sums_of_a_thread(config), fast.fast_threads(config, problem, limits)
    packed = sums // 2 if config["OVERLAP"] == 1 else fast.box_columns(config) // 4
    if not fast.trades_registers(config):
        return over_registers(sums + packed, threads, 1, limits)
    kept, taken = fast.registers_after_trade(config)
    if broken := hopper.broken_trade(threads, kept, taken):
        return broken
    addresses = FAST_ADDRESSES + (FAST_TRANSPOSED if problem.layout[0] == "T" else 0)
    return "more sums and fragments than the registers hold" if sums + packed + addresses > taken else None
