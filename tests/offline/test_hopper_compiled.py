"""What Hopper's kernels ask of registers, shared memory and barriers, read in what the compilers make of them."""

import re
from collections import Counter
from dataclasses import replace

import pytest

from lowlevel import catalog, hardware
from lowlevel.catalog import fast, hopper
from lowlevel.contender import launch_shape
from lowlevel.problems.make import make_problem
from lowlevel.toolchain.build import build_all

LIMITS = hardware.find("H200")


def variants() -> list:
    """Every configuration of the kernels that multiply by wgmma, of their first type and layout."""
    found = [v for v in catalog.variants() if v.kernel.archs == ("sm_90a",) and v.kernel.entry == "gemm"]
    first = {v.kernel.label: v for v in reversed(found)}
    return [replace(v, config=config) for v in reversed(first.values()) for config in v.kernel.configs_of(v.type)]


VARIANTS = variants()


def readers(config) -> int:
    """Arrivals that empty a stage of the kernel's ring."""
    if "CONSUMERS" in config:
        return hopper.empty_arrivals(fast.sharers(config), fast.cluster_size(config))
    if "CLUSTER_M" in config:  # of the blocks in one's row and column of the cluster
        return hopper.empty_arrivals(config["BM"] // 64, config["CLUSTER_M"] + config["CLUSTER_N"] - 1)
    return hopper.empty_arrivals(config["BM"] // 64, config.get("CLUSTER", 1))


@pytest.fixture(scope="module")
def compiled():
    binaries = build_all([catalog.request(variant, "sm_90a") for variant in VARIANTS])
    return dict(zip([variant.name for variant in VARIANTS], binaries, strict=True))


def instructions(binary, name: str, number: str) -> list[int]:
    """The constants that an instruction is given, through a register or not."""
    values = dict(re.findall(r"mov\.[bu]32\s+(%r\d+), (\d+);", binary.ptx))
    found = re.findall(rf"^[^/\n]*?\b{name}[^;]*?{number};", binary.ptx, re.MULTILINE)
    return [int(values.get(value, value)) for value in found]


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda v: v.name)
class TestWhatIsCompiled:
    def problem(self, variant):
        return make_problem(variant, (512, 512, 512))

    def shape(self, variant):
        return launch_shape(variant.kernel.launch, variant.config, self.problem(variant), LIMITS)

    def test_registers_that_are_taken_are_there(self, variant, compiled):
        """CUDA C++ enters with an equal share of the SM's. Of PTX, nvJitLink makes code to be linked and leaves
        setmaxnreg out: the kernel has what it was compiled with, which fits its threads, and the remark says so."""
        binary, threads = compiled[variant.name], self.shape(variant).block[0]
        given = instructions(binary, r"setmaxnreg\.dec", r"\s(\d+)")
        taken = instructions(binary, r"setmaxnreg\.inc", r"\s(\d+)")
        registers = binary.entries["gemm"].resources.registers
        ignored = "'setmaxnreg' ignored" in str(binary.advisories)
        assert len(given) == len(taken) <= 1
        assert ignored == bool(given and variant.kernel.language in ("ptx", "mlir"))
        if given and not ignored:
            assert registers == hopper.entry_registers(threads)
        assert registers <= hopper.entry_registers(threads)
        for trade in zip(given, taken, strict=True):
            assert hopper.broken_trade(threads, *trade) is None

    def test_barriers_are_initialised_for_who_arrives(self, variant, compiled):
        """Who fills a stage is one; who empties it, where a producer must be told, every warp that reads it."""
        stages = variant.config.get("STAGES", 1)
        inits = instructions(compiled[variant.name], r"mbarrier\.init", r", (%r\d+|\d+)")
        told = self.shape(variant).block[0] > 128 * (variant.config["BM"] // 64)
        told = told or "CONSUMERS" in variant.config
        assert Counter(inits) == Counter({1: stages} | ({readers(variant.config): stages} if told else {}))
        assert not any(map(hopper.broken_arrivals, inits))

    def test_barriers_expect_the_tiles(self, variant, compiled):
        expected = instructions(compiled[variant.name], r"mbarrier\.arrive\.expect_tx", r", (%r\d+|\d+)")
        assert set(expected) == {sum(hopper.operand_tiles(variant.config, self.problem(variant)))}
        assert not any(map(hopper.broken_expected_bytes, expected))

    def test_named_barriers_are_of_threads_that_are_there(self, variant, compiled):
        """Their numbers are the warps' own, and not to be read."""
        threads = instructions(compiled[variant.name], r"bar(?:rier)?\.(?:sync|arrive)", r"\s[^,;]+, (%r\d+|\d+)")
        wanted = fast.named_barriers(variant.config) if "PINGPONG" in variant.config else ()
        assert set(threads) == {count for _, count in wanted}
        assert hopper.broken_named_barriers(wanted, self.shape(variant).block[0]) is None

    def test_shared_memory_is_what_a_block_may_have(self, variant, compiled):
        """The dynamic part begins at 1024 bytes, if there is no other."""
        static, dynamic = compiled[variant.name].entries["gemm"].resources.shared, self.shape(variant).shared
        assert static == 0 or dynamic == 0
        assert static + dynamic <= LIMITS.shared_per_block_optin
        assert hopper.broken_tiles(hopper.operand_tiles(variant.config, self.problem(variant))) is None
