"""The callables of catalog entries: small pure functions of (config, problem, limits)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from lowlevel.catalog import hopper
from lowlevel.catalog.entry import Choose, Config, Dim3
from lowlevel.hardware import FLOP_PER_CLOCK, Limits
from lowlevel.problems.base import Problem


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def tiles(config: Config, problem: Problem, limits: Limits) -> Dim3:  # noqa: ARG001
    """A block for each BM x BN tile of an M x N array, tiles along n in x."""
    m, n = problem.dimensions["m"], problem.dimensions["n"]
    return (ceil_div(n, config["BN"]), ceil_div(m, config["BM"]), 1)


def one_element_a_thread(config: Config, problem: Problem, limits: Limits) -> Dim3:  # noqa: ARG001
    """A thread for each element of the tile, x along n."""
    return (config["BN"], config["BM"], 1)


def owner_of_element(config: Config, row: int, column: int) -> int:
    """The thread that `one_element_a_thread` gives an element of C."""
    return row % config["BM"] * config["BN"] + column % config["BN"]


def threads_of_register_tile(config: Config, problem: Problem, limits: Limits) -> int:  # noqa: ARG001
    """A thread for each TM x TN elements of the tile."""
    return config["BM"] // config["TM"] * (config["BN"] // config["TN"])


def owner_of_register_tile(config: Config, row: int, column: int) -> int:
    """The thread of `threads_of_register_tile` that computes an element: threads along n first."""
    row, column = row % config["BM"] // config["TM"], column % config["BN"] // config["TN"]
    return row * (config["BN"] // config["TN"]) + column


def threads_of_warps(config: Config, problem: Problem, limits: Limits) -> int:  # noqa: ARG001
    """A warp for each WM x WN of the tile, KGROUPS times."""
    return 32 * (config["BM"] // config["WM"]) * (config["BN"] // config["WN"]) * config.get("KGROUPS", 1)


def owner_in_warp_tile(config: Config, row: int, column: int) -> int:
    """The thread that stores an element where a warp is 4 x 8 lanes along m and n, each with fours of rows and of
    columns, 16 and 32 apart."""
    row, column = row % config["BM"], column % config["BN"]
    warp = row // config["WM"] * (config["BN"] // config["WN"]) + column // config["WN"]
    return 32 * warp + column % 32 // 4 * 4 + row % 16 // 4


def owner_of_mma(config: Config, row: int, column: int) -> int:
    """The thread whose sums hold an element where each warp has WM x WN of the tile in mma.sync's 16 x 8: row r of 8
    is held by lanes 4 r .. 4 r + 3, two columns each."""
    row, column = row % config["BM"], column % config["BN"]
    warp = row // config["WM"] * (config["BN"] // config["WN"]) + column // config["WN"]
    return 32 * warp + row % 8 * 4 + column % 8 // 2


def owner_in_strips(config: Config, row: int, column: int) -> int:
    """The thread that stores an element where each warp stores WM x WN of the tile in strips of 16 rows, its lanes
    taking pairs of columns one after another."""
    row, column = row % config["BM"], column % config["BN"]
    warp = row // config["WM"] * (config["BN"] // config["WN"]) + column // config["WN"]
    return 32 * warp + (row % 16 * config["WN"] + column % config["WN"]) // 2 % 32


def owner_of_wgmma(config: Config, row: int, column: int) -> int:
    """The thread whose sums hold an element where each warpgroup has 64 rows of the tile and all of its columns: a warp
    has 16 rows, and of those row r of 8 is held by lanes 4 r .. 4 r + 3, two columns each."""
    return row % config["BM"] // 16 * 32 + row % 8 * 4 + column % 8 // 2


def warpgroup_for_64_rows(config: Config, problem: Problem, limits: Limits) -> int:  # noqa: ARG001
    """Threads: a warpgroup for each 64 rows of the tile."""
    return 2 * config["BM"]


def threads_with_a_copying_warp(config: Config, problem: Problem, limits: Limits) -> int:
    """The same and a warp more, which copies."""
    return warpgroup_for_64_rows(config, problem, limits) + 32


def threads_with_a_producer(config: Config, problem: Problem, limits: Limits) -> int:
    """A warpgroup for each 64 rows and one more, which copies."""
    return warpgroup_for_64_rows(config, problem, limits) + 128


def column_of_tiles(config: Config, problem: Problem, limits: Limits) -> Dim3:
    """A block for each tile in one dimension, for a kernel that orders its tiles itself."""
    along_n, along_m, _ = tiles(config, problem, limits)
    return (along_n * along_m, 1, 1)


def ring_of_stages(config: Config, problem: Problem, limits: Limits) -> int:  # noqa: ARG001
    """Bytes of STAGES fp32 tiles of A, transposed with a pad of 4, and of B; or of half the sums of all KGROUPS."""
    ring = 4 * config["STAGES"] * config["BK"] * (config["BM"] + 4 + config["BN"])
    return max(ring, 2 * config["BM"] * config["BN"] * config["KGROUPS"] if config["KGROUPS"] > 1 else 0)


def ring_of_tiles(config: Config, problem: Problem, limits: Limits) -> int:  # noqa: ARG001
    """Bytes of STAGES tiles of A and of B, in the problem's own elements."""
    return config["STAGES"] * config["BK"] * (config["BM"] + config["BN"]) * problem.operands()[0].dtype.itemsize


def ring_of_boxes(config: Config, problem: Problem, limits: Limits) -> int:  # noqa: ARG001
    """Bytes of STAGES tiles of A and of B as TMA writes them, and of two barriers a stage."""
    return hopper.ring_bytes(config.get("STAGES", 1), hopper.operand_tiles(config, problem))


def ring_and_boxes_of_c(config: Config, problem: Problem, limits: Limits) -> int:  # noqa: ARG001
    """The same, and for each warp's 16 rows of the tile two boxes of 16 x 64 elements of C."""
    boxes = config["BM"] // 16 * 2 * (16 * 64 * 2)
    return hopper.ring_bytes(config["STAGES"], hopper.operand_tiles(config, problem), boxes)


def tiles_in_rounds(config: Config, problem: Problem, limits: Limits) -> Dim3:
    """Blocks that stay and take tile after tile, in clusters of CLUSTER below each other, if there is such a number.

    No more than there are SMs, and as few as need no more rounds: 2048 tiles are 16 rounds of 132 blocks, or of 128.
    """
    cluster = config.get("CLUSTER", 1)
    m, n = problem.dimensions["m"], problem.dimensions["n"]
    taken = ceil_div(m, cluster * config["BM"]) * ceil_div(n, config["BN"])
    rounds = ceil_div(taken, max(1, limits.sms // cluster))
    return (ceil_div(taken, rounds) * cluster, 1, 1)


def cluster_along_m(config: Config, problem: Problem, limits: Limits) -> Dim3:  # noqa: ARG001
    """CLUSTER blocks, in the grid one behind the other."""
    return (config["CLUSTER"], 1, 1)


#: Hopper's rate of mma.sync, of what `FLOP_PER_CLOCK` says for wgmma: 2709 FLOP a clock and SM measured on an H200 with
#: nothing else running; and of that, what an SM with fewer than 8 warps reached, 2485. Of the shorter of two things
#: that should overlap, how much does not: with it 128 x 256 x 64 comes to 0.85 of that rate, as measured.
_MMA_SYNC_ON_HOPPER, _FEW_WARPS, _NOT_HIDDEN = 2 / 3, 0.92, 0.2


def least_clocks_an_sm(configs: Sequence[Config], problem: Problem, limits: Limits) -> int:
    """The configuration under which the SM with most tiles is done first; the first of several alike.

    The clocks of a tile, for each 32 bytes of k, are those of its mma.sync or those of its shared memory, 128 bytes a
    clock, whichever are more, and a fifth of the others: every warp reads (WM + WN) x 32 bytes for its WM x WN
    elements, and copies write (BM + BN) x 32. Configurations whose stages a block of this GPU cannot have are not
    taken, if others are left.
    """
    peak = FLOP_PER_CLOCK.get(limits.capability, {}).get(problem.type.unit, 2048)
    rate = peak * (_MMA_SYNC_ON_HOPPER if limits.capability[0] >= 9 else 1.0)
    elements = 32 // problem.operands()[0].dtype.itemsize

    def clocks(config: Config) -> float:
        shared = ring_of_tiles(config, problem, limits)
        if shared > limits.shared_per_block_optin:
            return float("inf")
        along_n, along_m, _ = tiles(config, problem, limits)
        mine = ceil_div(along_n * along_m, limits.sms)
        at_once = min(mine, config["MIN_BLOCKS"], limits.shared_per_sm // (shared + limits.shared_reserved))
        area, warp = config["BM"] * config["BN"], config["WM"] * config["WN"]
        multiplied = 2 * area * elements / rate
        moved = (area // warp * (config["WM"] + config["WN"]) + config["BM"] + config["BN"]) * 32 / 128
        if at_once * area // warp < 8:
            multiplied /= _FEW_WARPS
        return mine * (max(multiplied, moved) + _NOT_HIDDEN * min(multiplied, moved))

    return min(range(len(configs)), key=lambda index: clocks(configs[index]))


def least_work_an_sm(configs: Sequence[Config], problem: Problem, limits: Limits) -> int:
    """The configuration under which the busiest SM computes the fewest elements, one block an SM at a time. Those with
    KGROUPS > 1 join sums and pay with a seventh more."""

    def work(config: Config) -> float:
        along_n, along_m, _ = tiles(config, problem, limits)
        waves = ceil_div(along_n * along_m, limits.sms)
        return waves * config["BM"] * config["BN"] * (1.0 if config["KGROUPS"] == 1 else 8 / 7)

    return min(range(len(configs)), key=lambda index: work(configs[index]))


def owner_of_fours(config: Config, row: int, column: int) -> int:  # noqa: ARG001
    """The thread that computes an element of C where 16 x 16 threads have 4 x 4 neighbouring elements each, 64 x 64
    together, and in a larger tile the same place of every 64 x 64."""
    return row % 64 // 4 * 16 + column % 64 // 4


def rows_of_tile(config: Config, problem: Problem, limits: Limits) -> Dim3:  # noqa: ARG001
    """BN x ROWS threads, which walk down the BM rows of their tile."""
    return (config["BN"], config["ROWS"], 1)


def threads(config: Config, problem: Problem, limits: Limits) -> int:  # noqa: ARG001
    return config["THREADS"]


def block_a_segment(words: int):
    """A block for each `words` words of a one-dimensional problem."""

    def grid(config: Config, problem: Problem, limits: Limits) -> Dim3:  # noqa: ARG001
        return (ceil_div(problem.dimensions["n"], words), 1, 1)

    return grid


def block_an_sm(config: Config, problem: Problem, limits: Limits) -> Dim3:  # noqa: ARG001
    """As many blocks as SMs: all of them run at once."""
    return (limits.sms, 1, 1)


def square_tiles(unit: int):
    """A block for each TILE x TILE tile of a move, counted in units of `unit` bytes, tiles along n in x."""

    def grid(config: Config, problem: Problem, limits: Limits) -> Dim3:  # noqa: ARG001
        side = config["TILE"] * unit // problem.operands()[0].dtype.itemsize
        return (ceil_div(problem.dimensions["n"], side), ceil_div(problem.dimensions["m"], side), 1)

    return grid


def tiles_in_order(unit: int):
    """As many blocks as TILE_M x TILE_N tiles of a move, in units of `unit` bytes; the kernel chooses their order.

    A row of numbers, since the grid's y ends at 65535.
    """

    def grid(config: Config, problem: Problem, limits: Limits) -> Dim3:  # noqa: ARG001
        unit_elements = unit // problem.operands()[0].dtype.itemsize
        tiles_m = ceil_div(problem.dimensions["m"], config["TILE_M"] * unit_elements)
        tiles_n = ceil_div(problem.dimensions["n"], config["TILE_N"] * unit_elements)
        return (tiles_m * tiles_n, 1, 1)

    return grid


def warp_rows(config: Config, problem: Problem, limits: Limits) -> Dim3:  # noqa: ARG001
    """ROWS warps, x along the lanes."""
    return (32, config["ROWS"], 1)


def pieces(config: Config, problem: Problem, limits: Limits) -> Dim3:  # noqa: ARG001
    """A block for each THREADS x UNROLL words of 16 bytes."""
    return (ceil_div(problem.operands()[0].nbytes, 16 * config["THREADS"] * config["UNROLL"]), 1, 1)


def word_a_block(config: Config, problem: Problem, limits: Limits) -> int:  # noqa: ARG001
    """Bytes for a counter and a word of every block of `block_an_sm`."""
    return 4 * (1 + limits.sms)


def ring_of_operands(config: Config, problem: Problem, limits: Limits) -> int:  # noqa: ARG001
    """Bytes of STAGES tiles of A and of B, 2 bytes an element; or of the fp32 sums of all KGROUPS, rows padded by 8."""
    ring = 2 * config["STAGES"] * config["BK"] * (config["BM"] + config["BN"])
    return max(ring, 4 * config["KGROUPS"] * config["BM"] * (config["BN"] + 8))


def slices_in_a_row(config: Config, problem: Problem, limits: Limits) -> Dim3:
    """A block for each of SPLITS slices of K of each tile, in one dimension."""
    blocks, _, _ = column_of_tiles(config, problem, limits)
    return (blocks * config["SPLITS"], 1, 1)


def slices_of_tiles(config: Config, problem: Problem, limits: Limits) -> Dim3:
    """A block for each of SPLITS slices of K of each tile: tiles as `tiles` has them, slices in z. Where tiles form
    clusters of CLUSTER_M x CLUSTER_N, whole ones."""
    along_n, along_m, _ = tiles(config, problem, limits)
    n, m = config.get("CLUSTER_N", 1), config.get("CLUSTER_M", 1)
    return (ceil_div(along_n, n) * n, ceil_div(along_m, m) * m, config["SPLITS"])


def cluster_of_tiles(config: Config, problem: Problem, limits: Limits) -> Dim3 | None:  # noqa: ARG001
    """CLUSTER_M x CLUSTER_N of them, or no cluster."""
    n, m = config["CLUSTER_N"], config["CLUSTER_M"]
    return (n, m, 1) if n * m > 1 else None


def slices_at_once(config: Config, problem: Problem, limits: Limits) -> Dim3:
    """The same in one dimension, but no more tiles than have a block of each slice on an SM of its own: all blocks run
    at once."""
    in_all, _, _ = column_of_tiles(config, problem, limits)
    return (min(in_all, max(1, limits.sms // config["SPLITS"])) * config["SPLITS"], 1, 1)


def sums_of_slices(config: Config, problem: Problem, limits: Limits) -> int:
    """Bytes for a counter of every tile, up to a multiple of 128, and the fp32 sums of every block of
    `slices_of_tiles`. None where a tile has one block."""
    if config["SPLITS"] == 1:
        return 0
    in_all, _, _ = column_of_tiles(config, problem, limits)
    return ceil_div(4 * in_all, 128) * 128 + 4 * in_all * config["SPLITS"] * config["BM"] * config["BN"]


def sums_of_warps(config: Config, problem: Problem, limits: Limits) -> int:
    """Bytes for a line of 128 for each warp of each tile, and the fp32 sums of every block of `slices_of_tiles`. None
    where a tile has one block. A warp has WM x WN of the tile, or else 16 rows, and KGROUPS share them."""
    if config["SPLITS"] == 1:
        return 0
    along_n, along_m, _ = slices_of_tiles(config, problem, limits)
    warps = config["BM"] // config.get("WM", 16) * (config["BN"] // config.get("WN", config["BN"]))
    warps *= config.get("KGROUPS", 1)
    return along_n * along_m * (128 * warps + 4 * config["SPLITS"] * config["BM"] * config["BN"])


def programmatic_or_not(config: Config, problem: Problem, limits: Limits) -> bool:  # noqa: ARG001
    return config["PDL"] > 0


def sums_at_once(config: Config, problem: Problem, limits: Limits) -> int:
    """Bytes for a counter of every tile of a round, up to a multiple of 128, and the fp32 sums of every block of
    `slices_at_once`: twice where these have several rounds to make. None where a tile has one block."""
    if config["SPLITS"] == 1:
        return 0
    in_all, _, _ = column_of_tiles(config, problem, limits)
    blocks, _, _ = slices_at_once(config, problem, limits)
    a_round = blocks // config["SPLITS"]
    sets = 1 if a_round == in_all else 2
    return ceil_div(4 * a_round, 128) * 128 + 4 * sets * blocks * config["BM"] * config["BN"]


#: What an SM reads from L2 in a clock while all SMs do, and while few do; bytes. How many products it adds up in a
#: clock where nothing else limits it, clocks until a block's sums have been seen by another and read, and clocks from
#: one call to the next that a programmatic launch saves. Rounded: they weigh configurations against each other, and
#: predict nothing.
_BYTES_WHEN_ALL_READ, _BYTES_WHEN_FEW_READ, _PRODUCTS, _HANDED_ON, _LAUNCHED = 25, 50, 1200, 2000, 1000


def _clocks_of_a_slice(config: Config, problem: Problem) -> float:
    """To read a slice from L2, or to multiply it."""
    k_blocks = ceil_div(ceil_div(problem.dimensions["k"], config["BK"]), config["SPLITS"])
    read = 2 * config["BK"] * (config["BM"] + config["BN"]) / _BYTES_WHEN_ALL_READ
    return k_blocks * max(read, config["BM"] * config["BN"] * config["BK"] / _PRODUCTS)


def _clocks_together(config: Config, problem: Problem, limits: Limits) -> float:
    """Of the busiest SM where the blocks of a tile share in adding up: tiles in rounds, a block an SM."""
    in_all, _, _ = column_of_tiles(config, problem, limits)
    rounds = ceil_div(in_all, max(1, limits.sms // config["SPLITS"]))
    sums = 4 * config["BM"] * config["BN"] / _BYTES_WHEN_ALL_READ
    handed_on = 0 if config["SPLITS"] == 1 else _HANDED_ON + 2 * sums
    return rounds * (_clocks_of_a_slice(config, problem) + handed_on)


def _clocks_alone(config: Config, problem: Problem, limits: Limits) -> float:
    """Of the busiest SM where one block of a tile adds up."""
    in_all, _, _ = column_of_tiles(config, problem, limits)
    splits, elements = config["SPLITS"], config["BM"] * config["BN"]
    rounds = ceil_div(in_all * splits, limits.sms)
    if splits == 1:
        return rounds * _clocks_of_a_slice(config, problem)
    sums = 4 * elements / _BYTES_WHEN_ALL_READ
    last = 4 * splits * elements * ceil_div(in_all, limits.sms) / _BYTES_WHEN_FEW_READ
    return rounds * (_clocks_of_a_slice(config, problem) + sums) + _HANDED_ON + last


def _clocks_while_there(config: Config, problem: Problem, limits: Limits) -> float:
    """The same where whoever is there adds up: LOOKS > 0, and all blocks run at once. PDL = 2 wants a block for each
    SM, neither more nor fewer."""
    blocks = math.prod(slices_of_tiles(config, problem, limits))
    if config["PDL"] > 0 and limits.capability < (9, 0):
        return math.inf
    if config["PDL"] == 2 and blocks != limits.sms:
        return math.inf
    if config["LOOKS"] > 0 and blocks > limits.sms:
        return math.inf
    clocks = _clocks_together if config["LOOKS"] > 0 else _clocks_alone
    return clocks(config, problem, limits) - (_LAUNCHED if config["PDL"] > 0 else 0)


#: Of an H200's 132 SMs, those that clusters of four find room on; clusters of two find all.
_ROOM_FOR_FOURS = 120 / 132


def _clocks_in_clusters(config: Config, problem: Problem, limits: Limits) -> float:
    """The same where blocks of a cluster share what they read. Where not all run at once, fewer is better."""
    blocks = math.prod(slices_of_tiles(config, problem, limits))
    m, n = config["CLUSTER_M"], config["CLUSTER_N"]
    room = limits.sms * (_ROOM_FOR_FOURS if m * n > 2 else 1)
    if config["PDL"] == 2 and blocks != limits.sms:
        return math.inf
    k_blocks = ceil_div(ceil_div(problem.dimensions["k"], config["BK"]), config["SPLITS"])
    read = 2 * config["BK"] * (config["BM"] / n + config["BN"] / m) / _BYTES_WHEN_ALL_READ
    sums = 4 * config["BM"] * config["BN"] / _BYTES_WHEN_ALL_READ
    clocks = ceil_div(blocks, int(room)) * (k_blocks * read + _HANDED_ON + 2 * sums)
    return clocks + (1e9 * blocks if blocks > room else 0) - (_LAUNCHED if config["PDL"] > 0 else 0)


def _least(clocks: Callable[[Config, Problem, Limits], float]) -> Choose:
    def choose(configs: Sequence[Config], problem: Problem, limits: Limits) -> int:
        return min(range(len(configs)), key=lambda index: clocks(configs[index], problem, limits))

    return choose


#: The configuration whose busiest SM should be done first: rounds of blocks that each read and multiply a slice, and
#: then the sums.
least_clocks_together = _least(_clocks_together)
least_clocks_while_there = _least(_clocks_while_there)
least_clocks_in_clusters = _least(_clocks_in_clusters)
