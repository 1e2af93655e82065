"""The callables of `gemm/25_fast` and `gemm/26_fp8`: pure functions of their numbers, as the heads of the files explain
them.

Tiles of a cluster are CLUSTER_M x CLUSTER_N of a block's, and each of its SPLITS slices of k is an item of work. A
persistent cluster takes one item after another.
"""

from __future__ import annotations

from collections.abc import Sequence

from lowlevel.catalog import hopper
from lowlevel.catalog.boxes import output_tile
from lowlevel.catalog.entry import Config, Dim3
from lowlevel.catalog.rules import ceil_div
from lowlevel.hardware import Limits
from lowlevel.problems.base import Problem
from lowlevel.tensormap import TensorMap

#: Rows of m that one wgmma multiplies, and threads that do it together.
ROWS, WARPGROUP = 64, hopper.WARPGROUP
#: Clusters of two that every GPC of a whole Hopper has room for: cu/include/gpc_claim.cuh.
COLUMN = 8
#: Bytes of the counters of places where others lie behind them, and what the sums of slices begin at a multiple of:
#: cu/include/slice_sums.cuh.
CLAIMS, SUMS_ALIGNMENT = 256, 256
#: What names leave out where it is not used, and stored choices of before there was such a number.
OPTIONAL = {"SPLITS": 1, "SNAKE": 0}
#: In which order tiles are taken.
ORDER = ("ALONG_N", "GROUP", "SNAKE")
#: Sums of a thread from which on an equal share of the registers does not hold them beside addresses.
SUMS_OF_AN_EQUAL_SHARE = 96


def fast_config(tile: tuple[int, int], stages: int, cluster: tuple[int, int] = (1, 1), **others: int) -> Config:
    """Two consumers that share a tile, two boxes a warp, strips of eight tiles of columns, and nothing else. BK is that
    of 16-bit operands unless given."""
    (m, n), (along_m, along_n) = tile, cluster
    numbers = {"BM": m, "BN": n, "BK": 64, "STAGES": stages, "CONSUMERS": 2, "PINGPONG": 0}
    numbers |= {"CLUSTER_M": along_m, "CLUSTER_N": along_n, "STORE_BOXES": 2, "OVERLAP": 0}
    return numbers | {"ALONG_N": 1, "GROUP": 8, "GPC": 0, "PDL": 0} | OPTIONAL | others


def cluster_size(config: Config) -> int:
    return config["CLUSTER_M"] * config["CLUSTER_N"]


def cluster_of(config: Config, problem: Problem, limits: Limits) -> Dim3 | None:  # noqa: ARG001
    """Two blocks, or none."""
    return (cluster_size(config), 1, 1) if cluster_size(config) > 1 else None


def sharers(config: Config) -> int:
    """Warpgroups that share a tile."""
    return 1 if config["PINGPONG"] else config["CONSUMERS"]


def sums_of_a_thread(config: Config) -> int:
    """Those of its part of the tile; where they are promoted, also the partial ones of 64 rows."""
    partial = config["BN"] // 2 if config.get("PROMOTE") else 0
    return config["BM"] * config["BN"] // (sharers(config) * WARPGROUP) + partial


def trades_registers(config: Config) -> bool:
    """Whether the producer is a warpgroup that hands registers to the consumers."""
    return config["CONSUMERS"] == 2 and sums_of_a_thread(config) > SUMS_OF_AN_EQUAL_SHARE


def registers_after_trade(config: Config) -> tuple[int, int]:
    """(producer's, consumers') registers a thread after setmaxnreg."""
    return (24, 240) if sums_of_a_thread(config) > 128 else (40, 232)


def named_barriers(config: Config) -> tuple[tuple[int, int], ...]:
    """(number, threads that meet there): consumers that take turns wait for their own, at which the other arrives."""
    return ((1, 2 * WARPGROUP), (2, 2 * WARPGROUP)) if config["PINGPONG"] else ()


def fast_threads(config: Config, problem: Problem, limits: Limits) -> int:  # noqa: ARG001
    """The consumers' warpgroups, and a warp or a warpgroup that copies."""
    return WARPGROUP * config["CONSUMERS"] + (WARPGROUP if trades_registers(config) else 32)


def box_columns(config: Config) -> int:
    """Columns of C that a warp stores at a time: 64, or all where that does not divide them."""
    return 64 if config["BN"] % 64 == 0 else config["BN"]


def tile_bytes(config: Config, problem: Problem) -> int:
    """Bytes of A's and B's tile of a stage."""
    return sum(hopper.operand_tiles(config, problem))


def bytes_of_boxes(config: Config) -> int:
    """Bytes of every consumer warp's boxes of C."""
    return 4 * config["CONSUMERS"] * config["STORE_BOXES"] * 16 * box_columns(config) * 2


def fast_shared(config: Config, problem: Problem, limits: Limits) -> int:  # noqa: ARG001
    """The ring, every consumer warp's boxes, and the claimed place."""
    tiles = hopper.operand_tiles(config, problem)
    return hopper.ring_bytes(config["STAGES"], tiles, bytes_of_boxes(config)) + 16


def box_of_c(config: Config, problem: Problem, limits: Limits) -> TensorMap | None:
    return output_tile(16, box_columns(config))(config, problem, limits)


def cluster_tiles(config: Config, problem: Problem) -> int:
    m, n = problem.dimensions["m"], problem.dimensions["n"]
    along_m = ceil_div(m, config["BM"] * config["CLUSTER_M"])
    return along_m * ceil_div(n, config["BN"] * config["CLUSTER_N"])


def k_blocks(config: Config, problem: Problem) -> int:
    return ceil_div(problem.dimensions["k"], config["BK"])


def items(config: Config, problem: Problem) -> int:
    """Items of work for clusters: the slices of all tiles."""
    return cluster_tiles(config, problem) * config["SPLITS"]


def clusters_at_once(config: Config, limits: Limits) -> int:
    """Clusters that are there at once, one block an SM. GPC = 1: whole columns of eight."""
    most = max(1, limits.sms // cluster_size(config))
    return most // COLUMN * COLUMN if config["GPC"] == 1 and most >= COLUMN else most


def clusters_launched(config: Config, problem: Problem, limits: Limits) -> int:
    """Every one of them has an item. Where places are in columns, all that are there at once; but what is left over of
    columns of eight only if their waves leave it items. Else no more than it takes to be done in as many waves: others
    would only draw power."""
    work, most = items(config, problem), clusters_at_once(config, limits)
    if not config["GPC"]:
        return ceil_div(work, ceil_div(work, most))
    clusters = min(work, most)
    in_columns = clusters // COLUMN * COLUMN
    left = work - ceil_div(work, clusters) * in_columns
    return clusters if left >= clusters - in_columns else in_columns


def fast_grid(config: Config, problem: Problem, limits: Limits) -> Dim3:
    return (cluster_size(config) * clusters_launched(config, problem, limits), 1, 1)


def claim_counters(config: Config, problem: Problem, limits: Limits) -> int:
    """Bytes of the counters of places: one of claims and one for each column of eight."""
    return 4 * (1 + ceil_div(clusters_launched(config, problem, limits), COLUMN)) if config["GPC"] else 0


def fast_workspace(config: Config, problem: Problem, limits: Limits) -> int:
    """Bytes of the counters of places, and where slices meet: a count of each warp of each tile, and all their sums."""
    if config["SPLITS"] == 1:
        return claim_counters(config, problem, limits)
    tiles = cluster_tiles(config, problem) * cluster_size(config)
    counts = ceil_div(4 * 4 * sharers(config) * tiles, SUMS_ALIGNMENT) * SUMS_ALIGNMENT
    return CLAIMS + counts + 4 * config["SPLITS"] * tiles * config["BM"] * config["BN"]


def programmatic(config: Config, problem: Problem, limits: Limits) -> bool:  # noqa: ARG001
    return bool(config["PDL"])


def owner_in_warpgroups(config: Config, row: int, column: int) -> int:
    """The thread whose sums hold an element: blocks of 64 rows are dealt out to the warpgroups that share the tile; of
    one, warp w has rows 16 w .. 16 w + 15, and of eight of them row r is held by lanes 4 r .. 4 r + 3. Of consumers
    that take turns, the first is named."""
    row, column = row % config["BM"], column % config["BN"]
    group = row * sharers(config) // config["BM"]
    return WARPGROUP * group + row % ROWS // 16 * 32 + row % 8 * 4 + column % 8 // 2


#: What the rule below counts with. Bytes a clock into an SM, and bytes a clock that one warpgroup stores, and two;
#: clocks from a copy's start until its data is there; clocks of a launch that waits for the one before it, and of a
#: claim; what a clock grows by for each row of operands that is fetched for a sum, and for each that a wgmma reads from
#: shared memory, in long products, where power sets it; what of the rows is fetched where the clusters of a GPC read
#: them together; how many clocks are long. Read off measurements on an H200; they weigh configurations against each
#: other, and predict nothing.
_LOADED, _STORED, _LATENCY, _START, _CLAIM = 64, (16, 24), 1000, 2000, 4000
_PER_ROW, _READS, _TOGETHER, _LONG = 16.0, 2.0, 0.8, 150_000
#: Clocks of every launch before its first copies, and those more until both blocks of a cluster are there.
_FIRST, _PEER = 2500, 200
#: Of sums of slices: bytes a clock that the last warps read, how often longer than one of C a byte of them takes to be
#: written, and clocks from the last sum written until they know of it and have read the first.
_READ, _SUMS, _MEETING = 64, 2, 2500
#: Clocks between the last product of a tile and the first of the next: in turn, by OVERLAP; and with one box a warp.
_IN_TURN, _BETWEEN, _ONE_BOX = 200, (500, 1000, 850), 50


def fast_clocks(config: Config, problem: Problem, limits: Limits) -> float:
    """Clocks of the busiest SM."""
    area, waves = config["BM"] * config["BN"], ceil_div(*items_and_clusters(config, problem, limits))
    behind = _behind_an_item(config)
    between = _between_tiles(config, behind)
    clocks = waves * _clocks_of_a_tile(config, _main_loop(config, problem), between, behind) - between
    power = (_PER_ROW * _rows_fetched(config) / area + _READS * _rows_read(config)) * min(1.0, clocks / _LONG)
    return clocks * (1 + power) + behind + _last_meeting(config) + _clocks_of_the_start(config, problem)


def _clocks_of_the_start(config: Config, problem: Problem) -> float:
    """Those of the launch, until a first tile of A and B is there."""
    peer, claim = _PEER if cluster_size(config) > 1 else 0, _CLAIM if config["GPC"] else 0
    return _FIRST + tile_bytes(config, problem) / _LOADED + peer + claim + (0 if config["PDL"] else _START)


def _main_loop(config: Config, problem: Problem) -> float:
    copies = max(tile_bytes(config, problem) / _LOADED, _LATENCY / (config["STAGES"] - 1))
    k_block = max(config["BM"] * config["BN"] / 32, copies)
    return ceil_div(k_blocks(config, problem), config["SPLITS"]) * k_block


def _store(config: Config) -> float:
    return 2 * config["BM"] * config["BN"] / _STORED[sharers(config) - 1]


def _behind_an_item(config: Config) -> float:
    """What follows an item's last product: C is stored. Or the slice's sums are, and as many read as written: one of
    SPLITS items reads those of all."""
    if config["SPLITS"] == 1:
        return _store(config)
    return 2 * _SUMS * _store(config) + 4 * config["BM"] * config["BN"] / _READ


def _last_meeting(config: Config) -> float:
    """What the last to come of the last tile's slices does more: it reads all others', and stores C."""
    if config["SPLITS"] == 1:
        return 0
    return _MEETING + 4 * (config["SPLITS"] - 1) * config["BM"] * config["BN"] / _READ + _store(config)


def _between_tiles(config: Config, behind: float) -> float:
    """What follows an item, too, where nothing hides it."""
    waits = _ONE_BOX if config["STORE_BOXES"] == 1 else 0
    if config["PINGPONG"]:
        return _IN_TURN + waits
    return _BETWEEN[config["OVERLAP"]] + waits + (0 if config["OVERLAP"] else behind)


def _clocks_of_a_tile(config: Config, main_loop: float, between: float, behind: float) -> float:
    if config["PINGPONG"]:
        return max(main_loop, (main_loop + behind) / 2) + between
    return max(main_loop + between, behind)


def _rows_fetched(config: Config) -> float:
    """Rows of A and B that a block fetches for each k-block: its part of what its cluster shares. What the cluster does
    not share, those of a GPC read together if they are neighbours in that direction."""
    a, b = config["BM"] / config["CLUSTER_N"], config["BN"] / config["CLUSTER_M"]
    along = config["CLUSTER_M"] > 1 if config["ALONG_N"] else config["CLUSTER_N"] > 1
    return (a + b) * (_TOGETHER if config["GPC"] and along else 1)


def _rows_read(config: Config) -> float:
    """Rows of A and B that a wgmma of 64 x BN reads from shared memory, for a sum."""
    return (ROWS + config["BN"]) / (ROWS * config["BN"])


def items_and_clusters(config: Config, problem: Problem, limits: Limits) -> tuple[int, int]:
    """Items of work, and the clusters that are there at once to take them."""
    return items(config, problem), clusters_at_once(config, limits)


def fewest_clocks(configs: Sequence[Config], problem: Problem, limits: Limits) -> int:
    """Of the configurations that fit, the one whose busiest SM should be done first. None whose sums are promoted: that
    is for who calls to ask for."""

    def clocks(index: int) -> float:
        fits = fast_shared(configs[index], problem, limits) <= limits.shared_per_block_optin
        fits = fits and not configs[index].get("PROMOTE")
        return fast_clocks(configs[index], problem, limits) if fits else float("inf")

    return min(range(len(configs)), key=clocks)
