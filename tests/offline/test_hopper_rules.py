"""Hopper's persistent and warp-specialised kernels: grids, shared memory, registers and barriers, by sums."""

import re
from collections import Counter
from dataclasses import replace

import pytest

from lowlevel import catalog, hardware
from lowlevel.catalog import hopper, rules
from lowlevel.contender import launch_shape
from lowlevel.dtypes import BF16
from lowlevel.problems.gemm import Gemm
from lowlevel.problems.make import make_problem
from lowlevel.toolchain.build import build_all

LIMITS = hardware.find("H200")
WIDE = {"BM": 128, "BN": 256, "BK": 64, "STAGES": 4}


def gemm(m: int, n: int) -> Gemm:
    return Gemm(m, n, 64, BF16)


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
    assert rules.tiles_in_rounds(config, gemm(*shape), replace(LIMITS, sms=sms)) == (blocks, 1, 1)


def test_blocks_of_a_cluster_lie_one_behind_the_other():
    assert rules.cluster_along_m(WIDE | {"CLUSTER": 2}, gemm(1, 1), LIMITS) == (2, 1, 1)


def test_a_producer_has_a_warpgroup_of_its_own():
    assert rules.threads_with_a_producer(WIDE, gemm(1, 1), LIMITS) == 384
    assert rules.threads_with_a_producer(WIDE | {"BM": 64}, gemm(1, 1), LIMITS) == 256


def test_boxes_of_c_lie_behind_the_ring():
    """4 stages of 16384 + 32768 bytes, 8 warps with two boxes of 2048, 8 barriers of 8."""
    assert rules.ring_and_boxes_of_c(WIDE, gemm(1, 1), LIMITS) == 196608 + 32768 + 64


class TestRegisters:
    @pytest.mark.parametrize(("threads", "registers"), [(384, 168), (512, 128), (256, 256), (128, 256)])
    def test_at_the_start(self, threads, registers):
        assert hopper.registers_at_start(threads) == registers

    @pytest.mark.parametrize(("threads", "kept", "taken"), [(384, 40, 232), (384, 24, 240), (512, 32, 160)])
    def test_a_sum_that_is_there(self, threads, kept, taken):
        assert hopper.broken_register_sum(threads, kept, taken) is None

    @pytest.mark.parametrize(
        ("threads", "kept", "taken", "said"),
        [
            (384, 48, 232, "48 + 2 x 232 = 512 is more than 3 x 168 = 504"),
            (384, 40, 240, "40 + 2 x 240 = 520 is more than 3 x 168 = 504"),
            (512, 40, 160, "40 + 3 x 160 = 520 is more than 4 x 128 = 512"),
            (384, 36, 232, "kept is not a multiple of 8 from 24 to 256"),
            (384, 16, 232, "kept is not a multiple of 8 from 24 to 256"),
            (384, 40, 264, "taken is not a multiple of 8 from 24 to 256"),
            (384, 176, 232, "starts with 168"),
            (384, 40, 160, "starts with 168"),
        ],
    )
    def test_a_sum_that_is_not(self, threads, kept, taken, said):
        assert said in hopper.broken_register_sum(threads, kept, taken)


@pytest.mark.parametrize(("more", "arrivals"), [({}, 8), ({"CLUSTER": 2}, 16), ({"BM": 192}, 12), ({"BM": 64}, 4)])
def test_arrivals_that_empty_a_stage(more, arrivals):
    assert hopper.arrivals_that_empty(WIDE | more) == arrivals


#: Every configuration of the kernels that stand by what is above.
SPECIALISED = [
    replace(variant, config=config)
    for variant in catalog.variants()
    if variant.kernel.launch.block is rules.threads_with_a_producer and variant.type is BF16 and variant.layout == "NT"
    for config in variant.kernel.configs
]


@pytest.fixture(scope="module")
def compiled():
    binaries = build_all([catalog.request(variant, "sm_90a") for variant in SPECIALISED])
    return dict(zip([variant.name for variant in SPECIALISED], binaries, strict=True))


def instructions(binary, name: str, number: str) -> list[int]:
    """The constants that an instruction is given, through a register or not."""
    values = dict(re.findall(r"mov\.[bu]32\s+(%r\d+), (\d+);", binary.ptx))
    found = re.findall(rf"^\s*{name}[^;]*?{number};", binary.ptx, re.MULTILINE)
    return [int(values.get(value, value)) for value in found]


@pytest.mark.parametrize("variant", SPECIALISED, ids=lambda v: v.name)
class TestWhatIsCompiled:
    def shape(self, variant):
        return launch_shape(variant.kernel.launch, variant.config, make_problem(variant, (512, 512, 512)), LIMITS)

    def test_registers_that_are_taken_are_there(self, variant, compiled):
        binary, threads = compiled[variant.name], self.shape(variant).block[0]
        (kept,) = instructions(binary, r"setmaxnreg\.dec", r"\s(\d+)")
        (taken,) = instructions(binary, r"setmaxnreg\.inc", r"\s(\d+)")
        assert binary.entries["gemm"].resources.registers == hopper.registers_at_start(threads)
        assert hopper.broken_register_sum(threads, kept, taken) is None

    def test_barriers_are_initialised_for_who_arrives(self, variant, compiled):
        stages = variant.config["STAGES"]
        inits = Counter(instructions(compiled[variant.name], r"mbarrier\.init", r", (%r\d+|\d+)"))
        assert inits == {1: stages, hopper.arrivals_that_empty(variant.config): stages}

    def test_shared_memory_is_what_a_block_may_have(self, variant, compiled):
        assert compiled[variant.name].entries["gemm"].resources.shared == 0  # the dynamic part begins at 1024 bytes
        assert self.shape(variant).shared <= LIMITS.shared_per_block_optin
