"""gemm/25_fast: what is launched, what the host refuses, which configuration is chosen; and GPCs from a probe."""

import random
import re
from pathlib import Path

import numpy as np
import pytest

from lowlevel import catalog, gpc, hardware, paths, tuned
from lowlevel.catalog import fast, space
from lowlevel.catalog.entry import Variant
from lowlevel.dtypes import BF16
from lowlevel.errors import LowlevelError
from lowlevel.problems.gemm import Gemm
from lowlevel.toolchain.build import build_all

H200, H100_PCIE = hardware.find("H200"), hardware.find("H100 PCIe")
SHIPPED = paths.tuned_root() / "h200.json"
#: Five shapes of the suite gemm-hopper-seeded, which is for shapes without a stored choice: so these are not shipped.
SLICED = Path(__file__).parents[1] / "fixtures" / "tuned_slices.json"
FAST = next(k for k in catalog.kernels() if k.label == "cuda:gemm/25_fast")
BASE = {
    "BM": 128, "BN": 256, "BK": 64, "STAGES": 4, "CONSUMERS": 2, "PINGPONG": 0, "CLUSTER_M": 2, "CLUSTER_N": 1,
    "STORE_BOXES": 2, "OVERLAP": 1, "ALONG_N": 1, "GROUP": 8, "GPC": 0, "PDL": 0, "SPLITS": 1, "SNAKE": 0,
}  # fmt: skip
LARGE = BASE | {"BM": 256, "BN": 192, "STAGES": 3, "CLUSTER_M": 1, "CLUSTER_N": 2, "OVERLAP": 2}
IN_TURN = BASE | {"BN": 144, "PINGPONG": 1, "OVERLAP": 0, "CLUSTER_M": 1}
SMALL = BASE | {"BM": 64, "BN": 64, "STAGES": 8, "CONSUMERS": 1, "CLUSTER_M": 1, "OVERLAP": 0}
IN_SLICES = BASE | {"OVERLAP": 0, "SPLITS": 2}


def cube(side: int, layout: str = "NT") -> Gemm:
    return Gemm(side, side, side, BF16, layout)


@pytest.mark.parametrize(
    ("config", "sums", "threads"),
    [(BASE, 128, 384), (LARGE, 192, 384), (IN_TURN, 144, 384), (SMALL, 32, 160), (BASE | {"BN": 192}, 96, 288)],
)
def test_a_producer_is_a_warpgroup_where_registers_have_to_be_traded(config, sums, threads):
    assert fast.sums_of_a_thread(config) == sums
    assert fast.fast_threads(config, cube(4096), H200) == threads


def test_shared_memory_by_hand():
    """Ring, boxes of 16 x 64 (or 16 x 144) for each of the consumers' warps, two barriers a stage, the place."""
    assert fast.fast_shared(BASE, cube(64), H200) == 4 * 49152 + 8 * 2 * 2048 + 4 * 16 + 16
    assert fast.fast_shared(SMALL, cube(64), H200) == 8 * 16384 + 4 * 2 * 2048 + 8 * 16 + 16
    assert fast.fast_shared(IN_TURN, cube(64), H200) == 4 * 34816 + 8 * 2 * 4608 + 4 * 16 + 16
    # Columns of B that run along n come in blocks of 64: 192 for 144.
    assert fast.fast_shared(IN_TURN, cube(64, "NN"), H200) == 4 * 40960 + 8 * 2 * 4608 + 4 * 16 + 16


@pytest.mark.parametrize(
    ("config", "problem", "limits", "blocks"),
    [
        (BASE, cube(4096), H200, 128),  # 256 tiles of a pair: four waves of 64 take no longer than of 66
        (BASE, cube(2560), H200, 100),  # 50 fit a wave
        (BASE, cube(2304), H200, 82),  # 81 need two waves, of 41
        (SMALL, cube(512), H200, 64),
        (BASE | {"GPC": 1}, cube(16384), H200, 128),
        (BASE | {"GPC": 2}, cube(16384), H200, 132),
        (BASE | {"GPC": 2}, cube(8192), H200, 128),  # 16 waves of 64 leave nothing of 1024 to two more
        (BASE | {"GPC": 1}, cube(16384), H100_PCIE, 112),
        (BASE | {"GPC": 1}, cube(512), H200, 8),  # as many pairs as tiles
        (BASE, Gemm(1, 1, 1, BF16, "NT"), H200, 2),
        (SMALL | {"SPLITS": 4}, cube(256), H200, 64),
        (IN_SLICES, cube(2560), H200, 100),  # 200 halves of tiles: four waves, of 50
        (IN_SLICES | {"GPC": 1}, cube(1024), H200, 64),
    ],
)
def test_the_grid_is_whole_clusters_and_no_more_than_its_waves_need(config, problem, limits, blocks):
    assert fast.fast_grid(config, problem, limits) == (blocks, 1, 1)


def test_counters_of_places():
    assert fast.claim_counters(BASE, cube(4096), H200) == 0
    assert fast.claim_counters(BASE | {"GPC": 1}, cube(4096), H200) == 4 * (1 + 8)
    assert fast.claim_counters(BASE | {"GPC": 2}, cube(16384), H200) == 4 * (1 + 9)


def test_where_slices_meet_by_hand():
    """256 bytes for claims, a count of 4 bytes for each warp of each tile to a multiple of 256, and all slices' sums.
    Tiles beyond the edge that fill up a cluster count."""
    problem = Gemm(300, 300, 4096, BF16, "NT")
    assert fast.fast_workspace(BASE, problem, H200) == 0
    assert fast.fast_workspace(BASE | {"GPC": 1}, cube(4096), H200) == 4 * (1 + 8)
    high = Gemm(600, 300, 4096, BF16, "NT")  # three tiles of a pair, and two
    assert fast.fast_workspace(IN_SLICES, high, H200) == 256 + 512 + 2 * 12 * 128 * 256 * 4
    assert fast.fast_workspace(IN_TURN | {"SPLITS": 3}, problem, H200) == 256 + 256 + 3 * 9 * 128 * 144 * 4
    assert fast.fast_workspace(SMALL | {"SPLITS": 4}, problem, H200) == 256 + 512 + 4 * 25 * 64 * 64 * 4


def test_the_words_of_claims_are_as_many_in_the_kernel():
    text = (paths.kernel_root() / "cu/include/slice_sums.cuh").read_text()
    assert int(re.search(r"int CLAIMS = (\d+),", text)[1]) * 4 == fast.CLAIMS
    most = max(fast.claim_counters(SMALL | {"CLUSTER_M": 2, "GPC": gpc}, cube(16384), H200) for gpc in (1, 2))
    assert most <= fast.CLAIMS


def test_boxes_of_c_are_of_a_warp():
    assert fast.box_of_c(BASE, cube(64), H200).box == (16, 64)
    assert fast.box_of_c(BASE, cube(64), H200).swizzle == "128B"
    wide = fast.box_of_c(IN_TURN, cube(64), H200)
    assert (wide.box, wide.swizzle) == ((16, 144), "none")
    assert fast.box_of_c(BASE, cube(63), H200) is None


def test_owner_counts_a_warpgroup_for_each_64_rows_of_a_shared_tile():
    assert [fast.owner_in_warpgroups(BASE, row, 0) for row in (0, 1, 8, 16, 63, 64, 127, 128)] == [
        0, 4, 0, 32, 96 + 28, 128, 128 + 96 + 28, 0,
    ]  # fmt: skip
    assert [fast.owner_in_warpgroups(LARGE, row, 3) for row in (0, 64, 128, 192)] == [1, 1, 129, 129]
    assert fast.owner_in_warpgroups(IN_TURN, 64, 0) == 0


@pytest.mark.parametrize(
    ("numbers", "rule"),
    [
        ({}, None),
        (LARGE, None),
        (IN_TURN, None),
        (SMALL, None),
        ({"BK": 32}, "BK is not 128 bytes"),
        ({"BN": 264}, "BN no multiple of 16 up to 256"),
        ({"BN": 136}, "BN no multiple of 16 up to 256"),
        ({"BM": 64}, "one or two blocks"),
        ({"PINGPONG": 1}, "OVERLAP=0"),
        ({"OVERLAP": 2}, "two a warpgroup"),
        (SMALL | {"GPC": 1}, "clusters of two"),
        ({"CLUSTER_N": 2}, "one peer at most"),
        (LARGE | {"OVERLAP": 1}, "registers"),
        (LARGE | {"BN": 256, "STAGES": 2}, "registers"),
        ({"STAGES": 5}, "shared memory"),
        ({"SPLITS": 2}, "OVERLAP=0"),
        (IN_SLICES | {"GROUP": 4}, "GROUP=8"),
        ({"SNAKE": 1}, None),
        ({"GPC": 2}, "whole columns"),  # four waves of 64 leave nothing to two more
    ],
)
def test_what_the_host_refuses(numbers, rule):
    found = space.refusal(FAST, BASE | numbers, cube(4096), H200)
    assert found is None if rule is None else rule in (found or "")


def test_clusters_beside_the_columns_are_for_what_waves_leave():
    assert space.refusal(FAST, BASE | {"GPC": 2}, cube(16384), H200) is None


@pytest.mark.parametrize(
    ("shape", "config", "rule"),
    [
        ((67 * 256, 256), BASE, None),
        ((66 * 256, 256), BASE, "single wave"),  # 66 tiles of a cluster
        ((1024, 1024), IN_SLICES, "whole tiles"),
    ],
)
def test_going_back_is_for_a_wave_behind_another(shape, config, rule):
    found = space.refusal(FAST, config | {"SNAKE": 1}, Gemm(*shape, 4096, BF16, "NT"), H200)
    assert found is None if rule is None else rule in (found or "")


@pytest.mark.parametrize(
    ("shape", "splits", "rule"),
    [
        ((1024, 1024, 4096), 2, None),
        ((1024, 1024, 64), 2, "more than there are k-blocks"),
        ((1024, 1024, 65), 2, None),
        ((2560, 2560, 4096), 2, "as much to multiply"),  # 100 tiles, 66 clusters: four halves or two whole ones
        ((2560, 2560, 4096), 3, None),  # five thirds
        ((2304, 2304, 4096), 3, None),  # 81 tiles: four thirds
        ((3072, 3072, 4096), 3, "two tiles a cluster"),  # 144 tiles, 66 clusters
    ],
)
def test_slices_are_for_clusters_that_would_have_nothing_to_do(shape, splits, rule):
    config = IN_SLICES | {"SPLITS": splits}
    found = space.refusal(FAST, config, Gemm(*shape, BF16, "NT"), H200)
    assert found is None if rule is None else rule in (found or "")


def test_what_the_host_admits_compiles():
    """A few of the space, and no spills: the host's rules are the file's."""
    choice, points = random.Random(7), space.points(FAST, Gemm(512, 512, 4096, BF16, "NT"), H200)
    few = choice.sample(space.points(FAST, cube(4096), H200), 8) + choice.sample(
        [config for config in points if config["SPLITS"] > 1], 6
    )
    variants = [Variant(FAST, BF16, "NT", config) for config in few]
    for variant, built in zip(variants, build_all([catalog.request(v, "sm_90a") for v in variants]), strict=True):
        assert not isinstance(built, LowlevelError), f"{variant.config_text}: {built}"
        assert built.entries["gemm"].resources.spills == 0, variant.config_text


@pytest.mark.parametrize(
    ("function", "numbers", "rule"),
    [
        ("registers_after_trade", (40, 240), "setmaxnreg: 40 + 2 x 240 = 520 registers"),
        ("named_barriers", ((16, 256),), "named barrier 16"),
        ("bytes_of_boxes", 512, "the staging has 512 bytes"),
        ("tile_bytes", 1 << 20, "an mbarrier that expects 1048576 bytes"),
        ("cluster_size", 1 << 18, "an mbarrier of 2097152 arrivals"),
    ],
)
def test_the_host_asks_what_a_block_may_have(monkeypatch, function, numbers, rule):
    """Each rule of Hopper is asked: numbers that break it are refused."""
    monkeypatch.setattr(fast, function, lambda *_: numbers)
    assert rule in space.admits_fast(BASE, cube(4096), H200)


@pytest.mark.parametrize("layout", ["NT", "NN"])
@pytest.mark.parametrize(
    ("shape", "tile", "in_turn"),
    [
        ((512, 512, 512), (64, 64), 0),
        ((1024, 1024, 1024), (64, 128), 0),
        ((2048, 2048, 2048), (128, 128), 1),
        ((3072, 3072, 3072), (128, 192), 1),
        ((4096, 4096, 4096), (128, 256), 0),
        ((6144, 6144, 6144), (256, 192), 0),
        ((16384, 16384, 16384), (256, 192), 0),
        ((2048, 2304, 768), (128, 144), 1),
        ((4096, 14336, 4096), (128, 256), 0),
        ((4096, 4096, 128), (256, 128), 0),
        ((8192, 8192, 1024), (128, 192), 1),
    ],
)
def test_the_rule_takes_what_was_fastest_on_an_h200(shape, tile, in_turn, layout):
    problem = Gemm(*shape, BF16, layout)
    config = FAST.configs[FAST.choose(FAST.configs, problem, H200)]
    assert ((config["BM"], config["BN"]), config["PINGPONG"], config["SPLITS"]) == (tile, in_turn, 1)
    assert space.fits(FAST, config, problem, H200) is None


@pytest.mark.parametrize("kernel", [k for k in catalog.kernels() if k.clocks], ids=lambda k: k.label)
def test_of_what_was_tried_on_an_h200_the_rule_takes_the_fastest(kernel):
    """Of the entry's configurations, up to what one run differs from another. None with SNAKE, which the count does not
    see: it is taken where it is named or tuned."""
    for choice in tuned.Tuned.load(SHIPPED).choices:
        type_ = next((t for t in kernel.types if t.name == choice.type), None)
        if choice.kernel == kernel.label and type_:
            counted = [config for config in kernel.configs if not (config.get("PROMOTE") or config["SNAKE"])]
            configs, ratios = _tried(kernel, choice, counted)
            found = kernel.choose(configs, Gemm(*choice.shape, type_, choice.layout), H200)
            assert ratios[found] > 0.99 * max(ratios), (choice.shape, choice.layout)


def _tried(kernel, choice, configs):
    """Those of the configurations that were tried, and their ratios to the reference in the last pass of each."""
    good = [(kernel.completed(f.config), f.vs_reference) for f in choice.tried if f.status == "ok"]
    last = [[ratio for tried, ratio in good if tried == config] for config in configs]
    return [c for c, found in zip(configs, last, strict=True) if found], [found[-1] for found in last if found]


@pytest.mark.parametrize(
    ("shape", "tile"),
    [((2688, 1152, 576), (128, 192)), ((2344, 928, 1824), (128, 160)), ((301, 5016, 522), (128, 128))],
)
def test_where_each_sm_has_a_tile_the_rule_takes_blocks_alone_that_share_it(shape, tile):
    problem = Gemm(*shape, BF16, "NT")
    config = FAST.configs[FAST.choose(FAST.configs, problem, H200)]
    assert ((config["BM"], config["BN"]), config["PINGPONG"], fast.cluster_size(config)) == (tile, 0, 1)
    tiles, at_once = fast.items_and_clusters(config, problem, H200)
    assert 0.75 * at_once < tiles <= at_once


def test_who_stores_alone_takes_longer_and_who_waits_for_a_peer_starts_later():
    """A tile an SM of 128 x 128; then many."""
    shared = BASE | {"BN": 128, "STAGES": 6, "CLUSTER_M": 1}
    in_turn = shared | {"PINGPONG": 1, "OVERLAP": 0}
    few, many = Gemm(1408, 1536, 576, BF16, "NT"), cube(8192)
    assert fast.items_and_clusters(shared, few, H200) == (132, 132)
    last_stores = 2 * 128 * 128 / 16 - 2 * 128 * 128 / 24
    assert fast.fast_clocks(in_turn, few, H200) - fast.fast_clocks(shared, few, H200) == pytest.approx(last_stores)
    assert fast.fast_clocks(in_turn, many, H200) < fast.fast_clocks(shared, many, H200)
    small_pair = SMALL | {"CLUSTER_M": 2}
    assert fast.fast_clocks(SMALL, cube(512), H200) < fast.fast_clocks(small_pair, cube(512), H200)


@pytest.mark.parametrize("shape", [(576, 2240, 12736), (512, 512, 4096), (256, 256, 8192)])
def test_the_rule_cuts_k_where_tiles_are_few(shape):
    problem = Gemm(*shape, BF16, "NT")
    config = FAST.configs[FAST.choose(FAST.configs, problem, H200)]
    assert config["SPLITS"] > 1
    assert space.refusal(FAST, config, problem, H200) is None


@pytest.mark.parametrize("choice", tuned.Tuned.load(SLICED).choices, ids=lambda c: "x".join(map(str, c.shape)))
def test_the_rule_cuts_k_where_that_was_faster_on_an_h200(choice):
    """The fastest with slices beside the fastest without, and what the rule takes."""
    configs, ratios = _tried(FAST, choice, [FAST.completed(f.config) for f in choice.tried])
    whole, cut = (
        max(ratio for config, ratio in zip(configs, ratios, strict=True) if (config["SPLITS"] > 1) == sliced)
        for sliced in (False, True)
    )
    config = FAST.configs[FAST.choose(FAST.configs, Gemm(*choice.shape, BF16, choice.layout), H200)]
    assert (config["SPLITS"] > 1) == (cut > whole)


@pytest.mark.parametrize(
    ("shape", "tile", "splits"), [((576, 2240, 12736), (128, 192), 2), ((768, 448, 3008), (64, 64), 1)]
)
def test_the_rule_takes_few_large_tiles_in_slices_and_more_small_ones_whole(shape, tile, splits):
    """60 tiles in two slices each; 84 smaller ones before 42 in three slices."""
    config = FAST.configs[FAST.choose(FAST.configs, Gemm(*shape, BF16, "NT"), H200)]
    assert ((config["BM"], config["BN"]), config["SPLITS"]) == (tile, splits)


def test_the_count_of_clocks_of_slices_by_hand():
    """32 tiles of 64 x 64 in four slices of 16 k-blocks each: one wave."""
    config, problem = SMALL | {"SPLITS": 4, "PDL": 1}, Gemm(256, 512, 4096, BF16, "NT")
    k_block = max(64 * 64 / 32, 2 * 8192 / 64, 1000 / 7)
    power = (16 + 2) * (64 + 64) / 4096 * 16 * k_block / 150_000  # as many rows fetched as read
    write, read, store = 2 * 4 * 4096 / 16, 4 * 4 * 4096 / 64, 2 * 4096 / 16
    start = 2500 + 2 * 8192 / 64
    expected = start + 16 * k_block * (1 + power) + write + 2500 + read + store
    assert fast.fast_clocks(config, problem, H200) == pytest.approx(expected)


def test_the_count_is_told_with_the_numbers_that_it_counts_with():
    text = " ".join((paths.kernel_root() / "docs/tuning.md").read_text().split())
    power = f"{fast._PER_ROW:g} R / (BM BN) + {fast._READS:g} (64 + BN) / (64 BN), at less than {fast._LONG:,} clocks"
    alone, first, second = fast._BETWEEN
    between = f"{alone} + the store, with OVERLAP=1 {first}, with OVERLAP=2 {second}, with PINGPONG {fast._IN_TURN}; "
    start = f"{fast._PEER} more with a cluster, {fast._CLAIM} for claims with GPC, {fast._START} without PDL"
    for told in (power, between + f"{fast._ONE_BOX} more with one box a warp", start, f"{fast._TOGETHER} of that"):
        assert told in text


def test_names_and_stored_choices_of_before_slices_stay():
    """They leave the number out, and stand for tiles that are not cut."""
    variant = Variant(FAST, BF16, "NT", FAST.configs[0])
    assert "SPLITS" not in variant.name
    assert catalog.find(variant.name).config["SPLITS"] == 1
    cut = variant.with_config(OVERLAP=0, SPLITS=2)
    assert cut.name.endswith(",PDL=0,SPLITS=2]")
    assert catalog.find(cut.name).config == cut.config
    stored = [c for c in tuned.Tuned.load(SHIPPED).choices if c.kernel == FAST.label]
    assert stored
    for choice in stored:
        config = FAST.completed(choice.config)
        assert list(config) == list(FAST.configs[0])
        assert space.refusal(FAST, config, Gemm(*choice.shape, BF16, choice.layout), H200) is None


@pytest.mark.parametrize(("layout", "held"), [("NT", True), ("NN", True), ("TN", False), ("TT", False)])
def test_a_tile_of_256_by_176_leaves_too_few_registers_for_a_transposed_a(layout, held):
    """220 of 240 for sums and a packed box; compiled for TN it spills four bytes."""
    config = fast.fast_config((256, 176), 3, (1, 2), STORE_BOXES=1, OVERLAP=2, ALONG_N=0, GPC=2)
    refused = space.refusal(FAST, config, Gemm(4096, 14336, 4096, BF16, layout), H200)
    assert (refused is None) == held


def test_the_count_of_clocks_prefers_neighbours_that_share_what_the_cluster_does_not():
    on_one_gpc = BASE | {"GPC": 1}
    clocks = [fast.fast_clocks(c, cube(8192), H200) for c in (on_one_gpc, BASE, on_one_gpc | {"ALONG_N": 0})]
    assert clocks[0] < clocks[1] < clocks[2]
    assert fast.fast_clocks(BASE, cube(512), H200) < fast.fast_clocks(on_one_gpc, cube(512), H200)  # the claim


def test_waves_are_of_clusters():
    """256 tiles of a pair on 132 SMs; of the 66 pairs, 64 are whole columns of eight."""
    assert fast.items_and_clusters(BASE, cube(4096), H200) == (256, 66)
    assert fast.items_and_clusters(BASE | {"GPC": 1}, cube(4096), H200) == (256, 64)
    assert fast.items_and_clusters(SMALL, cube(512), H200) == (64, 132)


def test_sms_of_a_gpc_are_those_seen_together():
    clusters = [(0, 2), (2, 4), (1, 3), (5, 7, 9, 11), (4, 6), (8, 10)]
    assert gpc.joined(clusters) == [{0, 2, 4, 6}, {5, 7, 9, 11}, {1, 3}, {8, 10}]
    assert gpc.joined([]) == []


def test_small_groups_are_put_together_until_eight_pairs_fit():
    """An H200 as it was found: seven GPCs of 16 to 18 SMs, one of 8, and four pairs apart; and an SM never seen."""
    sizes, first, groups = (18, 18, 18, 16, 16, 16, 14, 2, 2, 2), 0, []
    for size in sizes:
        groups.append(frozenset(range(first, first + size)))
        first += size
    numbers = gpc.numbered(groups, first + 1)
    assert numbers.dtype == np.uint8
    assert numbers.tolist() == [0] * 18 + [1] * 18 + [2] * 18 + [3] * 16 + [4] * 16 + [5] * 16 + [6] * 16 + [7] * 4 + [
        7
    ]
    assert gpc.numbered([frozenset(range(16))], 17).tolist() == [0] * 17
    assert gpc.numbered([], 3).tolist() == [0, 0, 0]


class _Memory:
    def __init__(self, nbytes):
        self.bytes = np.full(nbytes, 255, np.uint8)

    def fill(self, byte):
        self.bytes[:] = byte


class _NoClusters:
    limits, capabilities, allocated = H200, frozenset({"time"}), 0

    def allocate(self, nbytes):
        self.allocated += 1
        return _Memory(nbytes)

    def synchronize(self):
        pass


def test_a_device_has_one_table_and_without_clusters_an_empty_one():
    device = _NoClusters()
    first = gpc.table(device)
    assert first.bytes.tolist() == [0] * H200.sms
    assert gpc.table(device) is first
    assert device.allocated == 1
