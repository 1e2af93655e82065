"""Probes: small kernels that prove one thing each that the launch layer promises, or measure one thing each."""

from lowlevel.catalog.entry import Expect, Kernel, Launch, Rule, Step
from lowlevel.catalog.rules import block_a_segment, block_an_sm, tiles, word_a_block
from lowlevel.dtypes import BF16, FP16, WORDS


def _multiple(words: int) -> tuple[Rule, ...]:
    return (Rule(lambda p: p.dimensions["n"] % words == 0, f"the number of words must be a multiple of {words}"),)


KERNELS = (
    Kernel(
        "cuda",
        "probe/grid_barrier",
        entry="grid_barrier",
        idea="a barrier among all blocks of a grid, which cooperative launch makes safe",
        archs=("sm_75",),
        types=(WORDS,),
        params=("A", "C", "N", "workspace"),
        launch=Launch(
            block=256,
            grid=block_an_sm,
            cooperative=True,
            workspace=word_a_block,
        ),
        expect=Expect(sass={"sm_80": ("RED",), "sm_90": ("REDG",)}),
    ),
    Kernel(
        "cuda",
        "probe/cluster_shared",
        entry="cluster_shared",
        idea="blocks of a cluster read each other's shared memory",
        archs=("sm_90",),
        types=(WORDS,),
        params=("A", "C", "N"),
        needs=_multiple(1024),
        launch=Launch(block=256, grid=block_a_segment(256), cluster=(4, 1, 1)),
        expect=Expect(sass={"sm_90": ("UCGABAR_ARV", "UCGABAR_WAIT")}),
    ),
    Kernel(
        "cuda",
        "probe/programmatic_pair",
        entry="secondary",
        idea="a kernel that starts before the one it depends on has ended, and waits for its results",
        archs=("sm_90",),
        types=(WORDS,),
        params=("C", "N"),
        before=(Step("primary", ("A", "C", "N"), Launch(block=256, grid=block_a_segment(256))),),
        launch=Launch(block=256, grid=block_a_segment(256), programmatic=True),
        expect=Expect(sass={"sm_90": ("PREEXIT", "ACQBULK")}),
    ),
    Kernel(
        "cuda",
        "probe/large_shared",
        entry="large_shared",
        idea="64 KiB of dynamic shared memory, more than a block gets without asking",
        archs=("sm_75",),
        types=(WORDS,),
        params=("A", "C", "N"),
        needs=_multiple(16384),
        launch=Launch(block=256, grid=block_a_segment(16384), shared=65536),
        expect=Expect(sass={"sm_75": ("STS", "LDS")}),
    ),
    Kernel(
        "cuda",
        "probe/tensor_map",
        entry="tensor_map",
        idea="a tensor map passed by value, and a tile fetched through it by one thread",
        archs=("sm_90",),
        types=(WORDS,),
        configs=({"BM": 64, "BN": 32},),
        params=("map_A", "C", "M", "N", "ldc"),
        launch=Launch(block=128, grid=tiles),
        expect=Expect(sass={"sm_90": ("UTMALDG.2D", "SYNCS")}),
    ),
    Kernel(
        "cuda",
        "probe/mma_ceiling",
        entry="mma_ceiling",
        idea="mma.sync with all its operands in registers: the rate that no kernel made of it exceeds",
        archs=("sm_80",),
        types=(BF16, FP16),
        params=("A", "B", "C", "repetitions", "copies"),
        launch=Launch(block=256, grid=block_an_sm),
        expect=Expect(sass={"sm_80": ("HMMA.16816.F32",)}),
    ),
)
