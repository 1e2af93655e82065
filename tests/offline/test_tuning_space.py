"""Tuning spaces and shape classes: which configurations the host admits, and which shapes share a choice."""

import dataclasses

import pytest

from lowlevel import catalog, hardware
from lowlevel.catalog import space
from lowlevel.catalog.entry import Variant
from lowlevel.dtypes import BF16, FP16_ACC16, FP32, INT8
from lowlevel.errors import LowlevelError
from lowlevel.problems.gemm import Gemm
from lowlevel.shape_class import distance, shape_class
from lowlevel.toolchain.arch import runs_on
from lowlevel.toolchain.build import build_all

H200, A100, A10 = (hardware.find(name) for name in ("H200", "A100", "A10"))
CUBE = Gemm(4096, 4096, 4096, FP32)
SPACES = [kernel for kernel in catalog.kernels() if kernel.space]
WARP_TILE = next(k for k in catalog.kernels() if k.label == "cuda:gemm/08_warp_tile")
WIDE = {"BM": 256, "BN": 128, "BK": 64, "WM": 64, "WN": 64, "STAGES": 3, "MIN_BLOCKS": 1}


@pytest.mark.parametrize("kernel", SPACES, ids=lambda k: k.label)
def test_a_space_has_enough_to_try_on_every_gpu_that_runs_it(kernel):
    problem = Gemm(4096, 4096, 4096, kernel.types[0], kernel.layouts[0])
    for limits in (H200, A100):
        if not any(runs_on(arch, limits.capability) for arch in kernel.archs):
            continue
        found = space.points(kernel, problem, limits)
        assert len(found) >= 24
        assert found[: len(kernel.configs)] == list(kernel.configs)
        assert len({tuple(c.items()) for c in found}) == len(found)
        assert all(set(c) == set(kernel.configs[0]) for c in found)
    assert set(kernel.space) <= set(kernel.configs[0])
    assert kernel.takes_numbers


@pytest.mark.parametrize("kernel", SPACES, ids=lambda k: k.label)
def test_the_hosts_rules_admit_what_the_entry_lists(kernel):
    """Those that cut k, for fewer tiles."""
    large, few = (Gemm(side, side, 4096, kernel.types[0], kernel.layouts[0]) for side in (4096, 512))
    for config in kernel.configs:
        assert space.refusal(kernel, config, few if config.get("SPLITS", 1) > 1 else large, H200) is None


def test_stages_left_out_are_not_tried():
    points = [{"BM": 64, "STAGES": 3}, {"BM": 128, "STAGES": 2}, {"BM": 64, "STAGES": 4}, {"BM": 64, "STAGES": 2}]
    assert space.deepest(points) == [{"BM": 64, "STAGES": 4}, {"BM": 128, "STAGES": 2}]


@pytest.mark.parametrize("kernel", SPACES, ids=lambda k: k.label)
def test_what_is_tried_has_the_entrys_own_and_less_than_all_only_where_clocks_are_counted(kernel):
    problem = Gemm(4096, 4096, 4096, kernel.types[0], kernel.layouts[0])
    points, tried = (of(kernel, problem, H200) for of in (space.points, space.tried))
    assert tried[: len(kernel.configs)] == list(kernel.configs)
    assert (len(tried) < len(points)) == bool(kernel.clocks)
    shallow = dataclasses.replace(kernel, configs=({**kernel.configs[0], "STAGES": 3},))
    assert space.tried(shallow, problem, H200)[0] == shallow.configs[0]  # the space has it with 4


def test_products_and_refusals_add_up():
    kept = [c for c in space.products(WARP_TILE) if not space.refusal(WARP_TILE, c, CUBE, H200)]
    assert len(kept) + sum(space.refused(WARP_TILE, CUBE, H200).values()) == len(space.products(WARP_TILE)) == 432
    assert space.products(dataclasses.replace(WARP_TILE, space={})) == []


def test_optional_numbers_are_varied_where_the_rest_is_admitted():
    values = {"BM": (1, 2), "CUT": (1, 2, 3), "BN": (5,)}
    kernel = dataclasses.replace(
        WARP_TILE,
        configs=({"BM": 1, "CUT": 1, "BN": 5},),
        space=values,
        optional={"CUT": 1},
        admits=lambda config, *_: "two" if config["BM"] == 2 else "both" if config["CUT"] == 3 else None,
        launch=dataclasses.replace(WARP_TILE.launch, block=32, shared=0),
    )
    found = [(*config.values(), broken) for config, broken in space.weighed(kernel, CUBE, H200)]
    assert found == [(1, 1, 5, None), (1, 2, 5, None), (1, 3, 5, "both"), (2, 1, 5, "two")]
    assert space.points(kernel, CUBE, H200) == [{"BM": 1, "CUT": cut, "BN": 5} for cut in (1, 2)]
    assert space.refused(kernel, CUBE, H200) == {"both": 1, "two": 1}


def test_less_shared_memory_admits_less():
    counts = [len(space.points(WARP_TILE, CUBE, limits)) for limits in (H200, A100, A10)]
    assert counts[0] > counts[1] > counts[2] >= 24
    wide = {"BM": 128, "BN": 256, "BK": 32, "WM": 64, "WN": 64, "STAGES": 3, "KGROUPS": 1}
    assert space.refusal(WARP_TILE, wide, CUBE, H200) is None
    assert "101376 bytes of shared memory" in space.refusal(WARP_TILE, wide, CUBE, A10)


FEW = dict(WARP_TILE.configs[1])
REFUSED = [
    ({"STAGES": 1}, "fewer than 2 stages"),
    ({"BM": 96}, "not whole warp tiles"),
    ({"BM": 256, "BN": 1024, "KGROUPS": 1}, "more threads than there may be"),
    ({"BM": 256, "BN": 256, "BK": 32, "KGROUPS": 1}, "more sums and fragments"),
    ({"BK": 4}, "no even number of k"),
    ({"BM": 64, "BN": 64}, "too short"),
    ({"BN": 192}, "whole passes"),
    ({"KGROUPS": 1}, "more than 32 k"),
]


@pytest.mark.parametrize(("change", "rule"), REFUSED, ids=lambda v: str(v))
def test_each_rule_of_the_fp32_warp_tile(change, rule):
    assert rule in space.refusal(WARP_TILE, FEW | change, CUBE, H200)


def test_rules_of_tiles_for_mma():
    def admits(type_=BF16, layout="NT", **change):
        return space.admits_mma_tile(WIDE | change, Gemm(64, 64, 64, type_, layout), H200)

    assert admits() is None
    assert admits(MIN_BLOCKS=2) == "more sums and fragments than the registers hold"  # 2 x 256 threads: 128 each
    assert admits(BM=128, BN=128, MIN_BLOCKS=2) is None
    assert admits(BM=96) == "the tile is not whole warp tiles"
    assert "divides 64" in admits(BM=192, WM=96)
    assert "divides 64" in admits(WN=16)
    assert "more threads" in admits(BM=512, BN=256, WM=32, WN=32)
    assert admits(BK=16) == admits(INT8, BK=32) == "BK is not an even number of steps of mma.sync"
    assert admits(INT8, BK=128, STAGES=3) is None
    assert "over 128 bytes of k" in admits(BK=128)
    assert admits(layout="NN") == admits(layout="TN", BK=32) == admits(layout="TT") is None
    assert admits(BM=64, BN=256, layout="NT") is None
    assert admits(BM=64, BN=256, layout="NN") == "the threads do not copy a tile in whole passes"  # 4 rows of B a pass
    assert admits(BK=32, STAGES=2) == "the ring is smaller than C's tile, which takes its place"


def test_registers_of_sums_and_fragments():
    assert space.mma_registers(WIDE, BF16) == 128 + 2 * (16 + 16)  # 4 of A for each of 4 x 16 rows, 2 of B for 8 x 8
    assert space.mma_registers(WIDE, FP16_ACC16, ahead=1) == 64 + 32


#: Far apart in the space: the smallest and largest tiles, few and many stages, one and several groups of warps.
CORNERS = [
    {"BM": 64, "BN": 128, "BK": 8, "STAGES": 2, "KGROUPS": 1},
    {"BM": 64, "BN": 256, "BK": 16, "STAGES": 4, "KGROUPS": 2},
    {"BM": 256, "BN": 128, "BK": 16, "STAGES": 2, "KGROUPS": 1},
]


def _limits(kernel):
    """An A100's, or an H200's of what an A100 does not run."""
    return A100 if any(runs_on(arch, A100.capability) for arch in kernel.archs) else H200


def _compile(kernel, configs):
    """Everything that the GPU admits is built for it."""
    limits = _limits(kernel)
    problem = Gemm(4096, 4096, 4096, kernel.types[0], kernel.layouts[0])
    variants = [Variant(kernel, kernel.types[0], kernel.layouts[0], {**kernel.configs[0], **c}) for c in configs]
    for variant in variants:
        assert space.refusal(kernel, variant.config, problem, limits) is None, variant.config_text
    built = build_all([catalog.request(v, kernel.archs[0] if limits is H200 else A100.arch) for v in variants])
    for variant, binary in zip(variants, built, strict=True):
        assert not isinstance(binary, LowlevelError), f"{variant.config_text}: {binary}"
        yield binary.entries[kernel.entry].resources


def test_admitted_configurations_compile():
    assert [taken.spills for taken in _compile(WARP_TILE, CORNERS)] == [0] * len(CORNERS)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", SPACES, ids=lambda k: k.label)
def test_every_admitted_configuration_compiles(kernel):
    problem = Gemm(4096, 4096, 4096, kernel.types[0], kernel.layouts[0])
    points = space.points(kernel, problem, _limits(kernel))
    assert len(list(_compile(kernel, points))) == len(points)


def test_what_the_rules_refuse_the_compiler_refuses():
    """The rules are the file's static_asserts, not stricter: a refused pass or k-block does not compile."""
    for change in ({"BM": 64, "BN": 64}, {"BN": 192}):
        variant = Variant(WARP_TILE, FP32, "NN", FEW | change)
        (built,) = build_all([catalog.request(variant, "sm_80")])
        assert "static assertion failed" in str(built)


CLASSES = [
    ((128, 128, 64), "tiles to 0.25 an SM, k to 256, square, whole rows"),
    ((2048, 2048, 2048), "tiles 1-2 an SM, k 1024-4096, square, whole rows"),
    ((2048, 2112, 1024), "tiles 2-4 an SM, k 256-1024, square, whole rows"),  # 272 tiles on 132 SMs
    ((8192, 8192, 32768), "tiles over 16 an SM, k over 16384, square, whole rows"),
    ((8192, 512, 4096), "tiles 1-2 an SM, k 1024-4096, tall, whole rows"),
    ((512, 2049, 4096), "tiles 0.5-1 an SM, k 1024-4096, wide, broken rows"),
]


@pytest.mark.parametrize(("shape", "expected"), CLASSES)
def test_shape_classes(shape, expected):
    assert shape_class(Gemm(*shape, BF16), H200) == expected


def test_a_class_counts_tiles_by_the_gpus_sms_and_rows_by_their_strides():
    problem = Gemm(1280, 1280, 512, BF16, "NT")
    assert [shape_class(problem, gpu).split(",")[0] for gpu in (H200, A10)] == [
        "tiles 0.5-1 an SM",
        "tiles 1-2 an SM",
    ]
    assert shape_class(problem, H200).endswith("whole rows")
    for strides in ({"lda": 513}, {"ldb": 516}, {"ldc": 1281}):
        assert shape_class(dataclasses.replace(problem, **strides), H200).endswith("broken rows")
    assert shape_class(Gemm(64, 60, 60, FP32), H200).endswith("whole rows")


def test_distance_between_shapes():
    assert distance((1024, 1024, 1024), (1024, 1024, 1024)) == 0
    assert distance((1024, 2048, 512), (2048, 1024, 512)) == 2
