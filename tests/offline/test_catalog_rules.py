"""The callables of the catalog that size launches, and choose among configurations."""

import math
from dataclasses import replace

import pytest

from lowlevel import catalog, hardware, tuned
from lowlevel.catalog import rules
from lowlevel.catalog.select import all_variants, select
from lowlevel.commands.verify import problems_of
from lowlevel.contender import launch_shape
from lowlevel.dtypes import BF16, ELEMENTS, INT8, MOVE16, MOVE32, TF32
from lowlevel.errors import UsageError
from lowlevel.problems.gemm import Gemm
from lowlevel.problems.move import Copy, Transpose

LIMITS = hardware.find("H200")


@pytest.mark.parametrize(("type_", "grid"), [(MOVE32, (3, 2, 1)), (MOVE16, (2, 1, 1))])
def test_square_tiles_count_words_of_either_type(type_, grid):
    """32 words are 32 elements of 4 bytes, or 64 of 2."""
    assert rules.square_tiles(4)({"TILE": 32}, Transpose(33, 96, type_), LIMITS) == grid


@pytest.mark.parametrize(("unit", "type_", "blocks"), [(4, MOVE32, 3 * 5), (4, MOVE16, 2 * 3), (16, MOVE16, 1 * 1)])
def test_tiles_in_order_are_counted_in_words_or_vectors(unit, type_, blocks):
    config = {"TILE_M": 64, "TILE_N": 32}
    assert rules.tiles_in_order(unit)(config, Transpose(129, 160, type_), LIMITS) == (blocks, 1, 1)


def test_tiles_in_order_are_not_held_to_the_y_axis_of_a_grid():
    shape = Transpose(2**31 - 1, 1, MOVE16)
    assert rules.tiles_in_order(4)({"TILE_M": 64, "TILE_N": 32}, shape, LIMITS) == (2**24, 1, 1)


def test_warps_of_rows():
    assert rules.warp_rows({"ROWS": 8}, Transpose(1, 1, MOVE32), LIMITS) == (32, 8, 1)


@pytest.mark.parametrize(("elements", "blocks"), [(1, 1), (4 * 1024, 1), (4 * 1024 + 1, 2), (12 * 1024, 3)])
def test_a_copy_has_a_block_for_every_piece(elements, blocks):
    """1024 words of 16 bytes are 4096 elements of 4 bytes."""
    config = {"THREADS": 256, "UNROLL": 4}
    assert rules.pieces(config, Copy(1, elements, MOVE32), LIMITS) == (blocks, 1, 1)


@pytest.mark.parametrize("variant", select(["cuda:transpose/05_vectorised"]), ids=lambda v: v.type.name)
def test_verification_meets_whole_tiles_with_and_without_aligned_rows(variant):
    """Otherwise the vectors of a kernel with large tiles would never be tried: of A and C, and of either alone."""
    per_vector = 16 // ELEMENTS[variant.type.operand].bytes
    side_m, side_n = variant.config["TILE_M"] * per_vector, variant.config["TILE_N"] * per_vector
    whole = [p for p in problems_of(variant, "") if p.m >= side_m and p.n >= side_n]
    aligned = {(p.lda % per_vector == 0, p.ldc % per_vector == 0) for p in whole}
    assert aligned == {(True, True), (True, False), (False, True), (False, False)}


def test_owner_of_mma_gives_each_lane_its_two_rows_and_columns_of_every_16_by_8():
    config = {"BM": 64, "BN": 32, "WM": 32, "WN": 16}
    owners = [[rules.owner_of_mma(config, row, column) for column in range(32)] for row in range(64)]
    assert rules.threads_of_warps(config, None, None) == 128
    assert {thread for row in owners for thread in row} == set(range(128))
    assert [owners[r][c] for r, c in ((0, 0), (0, 1), (0, 2), (1, 0), (8, 0), (16, 8))] == [0, 0, 1, 4, 0, 0]
    assert (owners[0][16], owners[32][0], owners[39][23]) == (32, 64, 127)


def test_owner_in_strips_gives_pairs_of_columns_to_lanes_in_turn():
    config = {"BM": 64, "BN": 64, "WM": 32, "WN": 32}
    owners = [[rules.owner_in_strips(config, row, column) for column in range(64)] for row in range(64)]
    assert {thread for row in owners for thread in row} == set(range(128))
    assert [owners[r][c] for r, c in ((0, 0), (0, 1), (0, 2), (1, 0), (2, 0), (16, 30))] == [0, 0, 1, 16, 0, 15]
    assert (owners[0][32], owners[32][0], owners[33][63]) == (32, 64, 127)


SPLIT = {"BM": 32, "BN": 64, "BK": 128, "WM": 32, "WN": 32, "KGROUPS": 4, "STAGES": 4, "SPLITS": 16}
#: 4 x 2 tiles of SPLIT.
FEW_TILES = Gemm(128, 128, 16384, BF16, "NT")


def test_a_ring_holds_the_operands_and_then_the_sums():
    assert rules.ring_of_operands(SPLIT, FEW_TILES, LIMITS) == 4 * 128 * (32 + 64) * 2
    assert rules.ring_of_operands(SPLIT | {"BK": 16, "STAGES": 2}, FEW_TILES, LIMITS) == 4 * 32 * 72 * 4


def test_a_block_for_each_slice_and_a_place_for_its_sums():
    assert rules.slices_of_tiles(SPLIT, FEW_TILES, LIMITS) == (2, 4, 16)
    assert rules.sums_of_slices(SPLIT, FEW_TILES, LIMITS) == 128 + 8 * 16 * 32 * 64 * 4
    assert rules.sums_of_slices(SPLIT | {"SPLITS": 1}, FEW_TILES, LIMITS) == 0
    many = Gemm(33 * 32, 64, 1, BF16, "NT")  # 33 counters are 132 bytes
    assert rules.sums_of_slices(SPLIT, many, LIMITS) == 256 + 33 * 16 * 32 * 64 * 4


def test_a_line_for_each_warp_and_a_place_for_its_sums():
    meeting = SPLIT | {"WM": 16, "WN": 16, "KGROUPS": 1}  # 8 warps
    assert rules.sums_of_warps(meeting, FEW_TILES, LIMITS) == 8 * 8 * 128 + 8 * 16 * 32 * 64 * 4
    assert rules.threads_of_warps(meeting, FEW_TILES, LIMITS) == 8 * 32
    assert rules.sums_of_warps(meeting | {"SPLITS": 1}, FEW_TILES, LIMITS) == 0


@pytest.mark.parametrize(("groups", "warps"), [(1, 2), (2, 4), (4, 8)])
def test_groups_of_warps_have_more_lines_and_no_more_sums(groups, warps):
    """Of 32 x 64 in 32 x 32: warps keep a part of what their groups have joined."""
    meeting = SPLIT | {"KGROUPS": groups}
    assert rules.sums_of_warps(meeting, FEW_TILES, LIMITS) == 8 * warps * 128 + 8 * 16 * 32 * 64 * 4
    assert rules.threads_of_warps(meeting, FEW_TILES, LIMITS) == warps * 32


def test_names_leave_out_one_group_and_say_how_many_more():
    variant = select(["cuda:gemm/16_split_k"])[0]
    for config in variant.kernel.configs:
        name = replace(variant, config=config).name
        assert ("KGROUPS" in name) == (config["KGROUPS"] > 1)
        assert select([name])[0].config == config


def test_the_ptx_split_k_has_a_twin_of_as_many_threads_and_bytes():
    cuda, ptx = (select([name])[0].kernel for name in ("cuda:gemm/16_split_k", "ptx:gemm/16_split_k"))
    (twin,) = [config for config in cuda.configs if ptx.configs[0].items() <= config.items()]
    assert twin == cuda.configs[-1]  # both files say so
    ours = launch_shape(cuda.launch, twin, FEW_TILES, LIMITS)
    theirs = launch_shape(ptx.launch, ptx.configs[0], FEW_TILES, LIMITS)
    assert (math.prod(ours.grid), ours.block, ours.shared) == (math.prod(theirs.grid), theirs.block, theirs.shared)


def test_a_programmatic_launch_is_taken_where_it_is_to_be_had_and_each_sm_has_one_block():
    """33 slices of 4 tiles are a block for each of an H200's 132 SMs, and not for each of 114."""
    variant = select(["cuda:gemm/16_split_k"])[0]
    taken = {
        gpu: tuned.suited(variant, FEW_TILES, hardware.find(gpu)) for gpu in ("A100 SXM 80GB", "H100 PCIe", "H200")
    }
    assert [v.config["PDL"] for v in taken.values()] == [0, 0, 2]
    assert tuned.suited(variant, Gemm(128, 64, 16384, BF16, "NT"), LIMITS).config["PDL"] == 1
    for gpu, suited in taken.items():
        limits = hardware.find(gpu)
        shape = launch_shape(variant.kernel.launch, suited.config, FEW_TILES, limits)
        assert shape.programmatic == (suited.config["PDL"] > 0)
        assert math.prod(shape.grid) == limits.sms or not shape.programmatic


def test_two_calls_have_two_places_on_an_sm_and_three_have_not():
    limits = hardware.find("H200")
    for config in select(["cuda:gemm/16_split_k"])[0].kernel.configs:
        if config["PDL"] == 2:
            a_block = rules.ring_of_tiles(config, FEW_TILES, limits) + limits.shared_reserved
            assert limits.shared_per_sm // a_block == 2


def test_blocks_look_for_others_only_where_all_run_at_once():
    variant = select(["cuda:gemm/16_split_k"])[0]
    for m, n, k in ((128, 128, 16384), (512, 512, 4096), (1024, 1024, 65536), (64, 64 * 17, 2**20)):
        problem = Gemm(m, n, k, BF16, "NT")
        config = tuned.suited(variant, problem, LIMITS).config
        assert config["LOOKS"] == 0 or math.prod(rules.slices_of_tiles(config, problem, LIMITS)) <= LIMITS.sms


CLUSTERED = {"BM": 64, "BN": 64, "BK": 64, "STAGES": 9, "SPLITS": 30, "CLUSTER_M": 2, "CLUSTER_N": 2}


def test_tiles_of_a_slice_fill_whole_clusters():
    """3 x 1 tiles of 64 x 64 in clusters of 2 x 2: as many as 4 x 2, each with its lines and sums."""
    problem = Gemm(129, 64, 4096, BF16, "NT")
    assert rules.slices_of_tiles(CLUSTERED, problem, LIMITS) == (2, 4, 30)
    assert rules.cluster_of_tiles(CLUSTERED | {"CLUSTER_M": 1}, problem, LIMITS) == (2, 1, 1)
    assert rules.cluster_of_tiles(CLUSTERED | {"CLUSTER_M": 1, "CLUSTER_N": 1}, problem, LIMITS) is None
    assert rules.threads_with_a_copying_warp(CLUSTERED, problem, LIMITS) == 4 * 32 + 32
    assert rules.sums_of_warps(CLUSTERED, problem, LIMITS) == 8 * (4 * 128 + 30 * 64 * 64 * 4)


def test_clusters_of_four_are_as_many_as_find_room():
    """An H200 has room for 30; where tiles are more, slices are fewer."""
    variant = select(["cuda:gemm/27_split_k_cluster"])[0]
    few = tuned.suited(variant, FEW_TILES, LIMITS).config
    assert (few["CLUSTER_M"] * few["CLUSTER_N"], few["SPLITS"], few["PDL"] > 0) == (4, 30, True)
    assert few["STAGES"] * few["SPLITS"] * few["BK"] >= FEW_TILES.k  # every stage is used once
    for m, n in ((128, 256), (256, 256), (512, 256)):
        problem = Gemm(m, n, 8192, BF16, "NT")
        blocks = math.prod(rules.slices_of_tiles(tuned.suited(variant, problem, LIMITS).config, problem, LIMITS))
        assert 64 < blocks <= 120


@pytest.mark.parametrize(("m", "blocks", "sets"), [(32, 16, 1), (32 * 8, 128, 1), (32 * 9, 128, 2), (10**6, 128, 2)])
def test_blocks_that_wait_for_each_other_fit_on_the_gpu_at_once(m, blocks, sets):
    """8 x 16 blocks are the most on 132 SMs; a second set of sums where they come round again."""
    problem = Gemm(m, 64, 512, BF16, "NT")
    assert rules.slices_at_once(SPLIT, problem, LIMITS) == (blocks, 1, 1)
    assert rules.sums_at_once(SPLIT, problem, LIMITS) == 128 + sets * blocks * 32 * 64 * 4
    assert rules.sums_at_once(SPLIT | {"SPLITS": 1}, problem, LIMITS) == 0


@pytest.mark.parametrize("kernel", ["cuda:gemm/15_split_k_cooperative", "cuda:gemm/16_split_k"])
def test_few_tiles_are_cut_into_slices_and_many_are_not(kernel):
    variant = select([kernel])[0]
    few = tuned.suited(variant, FEW_TILES, LIMITS).config
    assert few["SPLITS"] >= 8
    assert 64 <= math.prod(rules.slices_of_tiles(few, FEW_TILES, LIMITS)) <= 132
    assert tuned.suited(variant, Gemm(8192, 8192, 8192, BF16, "NT"), LIMITS).config["SPLITS"] == 1
    assert tuned.suited(variant, Gemm(4096, 4096, 64, BF16, "NT"), LIMITS).config["SPLITS"] == 1


@pytest.mark.parametrize("gpu", ["A100 SXM 80GB", "H100 PCIe", "H200"])
@pytest.mark.parametrize("kernel", ["cuda:gemm/15_split_k_cooperative", "cuda:gemm/16_split_k"])
def test_every_split_fits_on_an_sm_and_in_a_grid(kernel, gpu):
    """15's blocks wait for each other, one an SM."""
    variant = select([kernel])[0]
    limits = hardware.find(gpu)
    for config in variant.kernel.configs:
        assert variant.kernel.launch.shared(config, FEW_TILES, limits) <= limits.shared_per_block_optin
        if variant.kernel.launch.cooperative:
            assert variant.kernel.launch.grid(config, FEW_TILES, limits)[0] <= limits.sms


@pytest.mark.parametrize(("type_", "shared"), [(BF16, 65536), (TF32, 131072), (INT8, 32768)])
def test_a_ring_holds_elements_of_the_problems_own_size(type_, shared):
    config = {"BM": 128, "BN": 128, "BK": 32, "STAGES": 4}
    assert rules.ring_of_tiles(config, Gemm(1, 1, 1, type_, "NT"), LIMITS) == shared


def test_13_has_rows_of_128_bytes_and_the_same_ring_for_every_type():
    (kernel,) = {v.kernel for v in select(["cuda:gemm/13_multistage"])}
    for variant in kernel.variants():
        problem = Gemm(1, 1, 1, variant.type, variant.layout)
        assert variant.config["BK"] * ELEMENTS[variant.type.operand].bytes == 128
        assert rules.ring_of_tiles(variant.config, problem, LIMITS) == 98304
        assert variant.listed
        assert catalog.find(variant.name) == variant


def test_a_type_with_configurations_of_its_own_has_those_alone():
    (kernel,) = {v.kernel for v in select(["cuda:gemm/13_multistage"])}
    blocks = {t.name: {v.config["BK"] for v in kernel.all_variants() if v.type is t} for t in kernel.types}
    assert (blocks["bf16"], blocks["tf32"], blocks["int8"]) == ({32, 64}, {32}, {128})
    (mine,) = {v.kernel for v in select(["cu/gemm/13_multistage.cu as cuda:gemm/13_multistage STAGES=2"])}
    assert {t.name: [c["BK"] for c in mine.configs_of(t)] for t in (BF16, TF32, INT8)} == {
        "bf16": [64],
        "tf32": [32],
        "int8": [128],
    }


def _tile(gpu, *shape):
    """The tile and BK that 14's rule takes."""
    (wide, *_) = select(["cuda:gemm/14_wide"])
    chosen = tuned.suited(wide, Gemm(*shape, BF16, "NT"), hardware.find(gpu)).config
    return chosen["BM"], chosen["BN"], chosen["BK"]


def test_large_products_take_the_widest_tiles_that_fit_and_small_ones_more_of_smaller():
    assert _tile("H200", 4096, 4096, 4096) == (128, 256, 64)
    assert _tile("H200", 256, 256, 4096) == (64, 64, 64)
    assert _tile("A10", 8192, 8192, 4096) == (128, 256, 32), "100 KB hold four stages of 24 KB, not three of 48"


def test_the_last_wave_decides_between_tiles_of_one_shape_and_another():
    """288 wide tiles on 132 SMs are three waves, 2.2 of them work; 576 square ones are five halves of a wave."""
    assert _tile("H200", 3072, 3072, 4096) == (128, 128, 64)
    # 12 x 11 tiles are one wave if 256 is along m; the other way round they are 24 x 6.
    assert _tile("H200", 12 * 256, 11 * 128, 4096) == (256, 128, 64)


def test_two_blocks_an_sm_are_not_counted_where_their_stages_do_not_fit_together():
    """An A100 holds one block of three stages of 32 KB, so four warps; two of four stages of 16 KB."""
    assert _tile("A100", 2048, 2048, 2048) == (128, 128, 32)


def test_types_with_fewer_layouts_have_variants_in_those_alone():
    (kernel,) = {v.kernel for v in select(["cuda:gemm/13_multistage"])}
    for variants in (kernel.variants(), [v for v in all_variants() if v.kernel is kernel]):
        layouts = {t.name: {v.layout for v in variants if v.type is t} for t in kernel.types}
        assert layouts.pop("tf32") == layouts.pop("int8") == {"NT"}
        assert all(mine == {"NN", "NT", "TN", "TT"} for mine in layouts.values())
    assert catalog.find(next(v.name for v in kernel.variants() if v.type is INT8)).type is INT8
    listed = next(v for v in kernel.variants() if v.layout == "NN").name
    swept = listed.replace("s3", "s6")
    assert catalog.unlisted(swept).layout == "NN"
    for name in (listed, swept):
        with pytest.raises(UsageError, match="no variant"):
            catalog.find(name.replace("[bf16,", "[int8,"))


#: gemm/22 to 24.
WIDE = {"BM": 128, "BN": 256, "BK": 64, "STAGES": 4}


@pytest.mark.parametrize(
    ("shape", "cluster", "sms", "blocks"),
    [
        ((8192, 8192), 1, 132, 128),  # 2048 tiles, 16 rounds of 128 as of 132
        ((8192, 8192), 2, 132, 128),
        ((16384, 16384), 1, 132, 131),  # 8192 tiles, 63 rounds
        ((1024, 1024), 1, 132, 32),
        ((1, 1), 1, 132, 1),
        ((1, 1), 2, 132, 2),
        ((129, 257), 2, 132, 4),  # two rows of tiles are one of clusters
        ((257, 257), 2, 132, 8),  # the third row has a cluster of its own, of which half lies outside
        ((1280, 256), 2, 7, 6),  # 5 clusters, 3 of them at once
        ((1280, 256), 1, 3, 3),
    ],
)
def test_blocks_that_stay_are_no_more_than_their_rounds_need(shape, cluster, sms, blocks):
    config = WIDE | ({"CLUSTER": cluster} if cluster > 1 else {})
    assert rules.tiles_in_rounds(config, Gemm(*shape, 64, BF16), replace(LIMITS, sms=sms)) == (blocks, 1, 1)


def test_blocks_of_a_cluster_lie_one_behind_the_other():
    assert rules.cluster_along_m(WIDE | {"CLUSTER": 2}, Gemm(1, 1, 64, BF16), LIMITS) == (2, 1, 1)


def test_a_producer_has_a_warpgroup_of_its_own():
    assert rules.threads_with_a_producer(WIDE, Gemm(1, 1, 64, BF16), LIMITS) == 384
    assert rules.threads_with_a_producer(WIDE | {"BM": 64}, Gemm(1, 1, 64, BF16), LIMITS) == 256


def test_boxes_of_c_lie_behind_the_ring():
    """4 stages of 16384 + 32768 bytes, 8 warps with two boxes of 2048, 8 barriers of 8."""
    assert rules.ring_and_boxes_of_c(WIDE, Gemm(1, 1, 64, BF16), LIMITS) == 196608 + 32768 + 64
