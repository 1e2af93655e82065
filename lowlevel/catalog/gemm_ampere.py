"""The matmul ladder on Ampere's tensor cores: mma.sync, for sm_80 and anything newer."""

from dataclasses import replace

from lowlevel.catalog.entry import Config, Expect, Kernel, Launch, twin
from lowlevel.catalog.rules import (
    column_of_tiles,
    least_clocks_an_sm,
    owner_in_strips,
    owner_of_mma,
    programmatic_or_not,
    ring_of_tiles,
    threads_of_warps,
    tiles,
)
from lowlevel.catalog.space import admits_mma_tile
from lowlevel.dtypes import BF16, FP16, FP16_ACC16, INT8, TF32

_PARAMS = ("A", "B", "C", "M", "N", "K", "lda", "ldb", "ldc")
_FINISHED = (*_PARAMS, "epilogue")
_EPILOGUES = ("none", "bias", "bias_relu", "bias_silu", "residual")
_LAYOUTS = ("NT", "NN", "TN", "TT")
_TILE = {"BM": 128, "BN": 128, "BK": 64, "WM": 64, "WN": 32}
_MULTISTAGE = {"BM": 128, "BN": 128, "BK": 64, "WM": 64, "WN": 32, "STAGES": 3}
_WIDE = {"BM": 128, "BN": 256, "BK": 64, "WM": 64, "WN": 64, "STAGES": 3, "MIN_BLOCKS": 1}
_WIDE_TALL = _WIDE | {"BM": 256, "BN": 128}
_WIDE_SQUARE = _WIDE | {"BN": 128, "MIN_BLOCKS": 2}
_WIDE_SMALL = _WIDE | {"BM": 64, "BN": 64, "WM": 32, "WN": 32, "MIN_BLOCKS": 3}
_SHORT = {"BK": 32, "STAGES": 4}
#: gemm/14's; those for large tiles also with programmatic launch, which is taken only where it was tuned.
_WIDE_ALONE = (
    _WIDE,
    _WIDE_TALL,
    _WIDE_SQUARE,
    _WIDE_SMALL,
    _WIDE | _SHORT,
    _WIDE_TALL | _SHORT,
    _WIDE_SQUARE | _SHORT,
)
_WIDE_CONFIGS = (
    *(config | {"PDL": 0} for config in _WIDE_ALONE),
    *(config | {"PDL": 1} for config in (_WIDE, _WIDE_TALL)),
)
_WIDE_SPACE = {
    "BM": (64, 128, 256),
    "BN": (64, 128, 256),
    "BK": (32, 64),
    "WM": (32, 64),
    "WN": (32, 64),
    "STAGES": (2, 3, 4, 5),
    "MIN_BLOCKS": (1, 2),
    "PDL": (0, 1),
}
_LAUNCH_RING = Launch(block=threads_of_warps, grid=column_of_tiles, shared=ring_of_tiles)
_LAUNCH = Launch(block=threads_of_warps, grid=tiles)


def _multistage(**block: int) -> tuple[Config, ...]:
    default = _MULTISTAGE | block
    return (default, *(default | other for other in ({"STAGES": 2}, {"STAGES": 4}, {"WN": 64})))


KERNELS: tuple[Kernel, ...] = (
    Kernel(
        "cuda",
        "gemm/10_wmma",
        entry="gemm",
        idea="WMMA: a warp multiplies 16 x 16 x 16 at once, and nobody says who holds what",
        archs=("sm_80",),
        types=(BF16, FP16),
        layouts=("NT",),
        configs=(_TILE | {"PAD": 8}, _TILE | {"PAD": 0}),
        params=_FINISHED,
        launch=_LAUNCH,
        epilogues=_EPILOGUES,
        owner=owner_in_strips,
        expect=Expect(sass={"sm_80": ("LDG.E.128", "STS.128", "LDSM", "HMMA.16816.F32", "BAR")}),
    ),
    Kernel(
        "cuda",
        "gemm/11_mma",
        entry="gemm",
        idea="ldmatrix and mma.sync: every lane knows its elements, and stores them from registers",
        archs=("sm_80",),
        types=(BF16, FP16, FP16_ACC16),
        layouts=("NT",),
        configs=(_TILE | {"PAD": 8}, _TILE | {"PAD": 0}),
        params=_FINISHED,
        launch=_LAUNCH,
        epilogues=_EPILOGUES,
        owner=owner_of_mma,
        expect=Expect(sass={"sm_80": ("LDG.E.128", "STS.128", "LDSM.16.M88.4", "HMMA.16816", "BAR")}),
    ),
    Kernel(
        "cuda",
        "gemm/12_swizzle",
        entry="gemm",
        idea="an XOR in place of the pad: no bank conflict, and no byte spent on it",
        archs=("sm_80",),
        types=(BF16, FP16, FP16_ACC16),
        layouts=("NT",),
        configs=(_TILE, _TILE | {"BK": 32}),
        params=_FINISHED,
        launch=_LAUNCH,
        epilogues=_EPILOGUES,
        owner=owner_of_mma,
        expect=Expect(sass={"sm_80": ("LDG.E.128", "STS.128", "LDSM.16.M88.4", "HMMA.16816", "BAR")}),
    ),
    Kernel(
        "cuda",
        "gemm/13_multistage",
        entry="gemm",
        idea="cp.async into a ring of tiles: three on their way while one is multiplied",
        archs=("sm_80",),
        types=(BF16, FP16, FP16_ACC16, TF32, INT8),
        layouts=_LAYOUTS,
        fewer_layouts={"tf32": ("NT",), "int8": ("NT",)},
        configs=(*_multistage(BK=64), _MULTISTAGE | _SHORT),
        # Rows of 128 bytes for every type, and so one ring: 98304 bytes. With WN = 64 int8 spills on sm_80.
        type_configs={"tf32": _multistage(BK=32), "int8": _multistage(BK=128)[:-1]},
        params=_PARAMS,
        launch=_LAUNCH_RING,
        owner=owner_of_mma,
        expect=Expect(sass={"sm_80": ("LDGSTS.E.BYPASS", "LDGDEPBAR", "LDSM.16")}),
    ),
    Kernel(
        "cuda",
        "gemm/14_wide",
        entry="gemm",
        idea="64 x 64 a warp: fragments one k-step ahead, copies dealt out over the k-steps, C stored 16 bytes a lane",
        archs=("sm_80",),
        types=(BF16, FP16, FP16_ACC16),
        layouts=_LAYOUTS,
        configs=_WIDE_CONFIGS,
        choose=least_clocks_an_sm,
        space=_WIDE_SPACE,
        admits=admits_mma_tile,
        params=_FINISHED,
        launch=replace(_LAUNCH_RING, programmatic=programmatic_or_not),
        epilogues=_EPILOGUES,
        owner=owner_of_mma,
        expect=Expect(sass={"sm_80": ("LDGSTS.E.BYPASS", "LDGDEPBAR", "LDSM.16", "HMMA.16816", "STG.E.128")}),
    ),
    Kernel(
        "ptx",
        "gemm/10_wmma",
        entry="gemm",
        idea=twin("cuda"),
        archs=("sm_80",),
        types=(BF16,),
        layouts=("NT",),
        configs=(_TILE | {"PAD": 8},),
        params=_PARAMS,
        launch=_LAUNCH,
        owner=owner_in_strips,
        expect=Expect(
            version="7.0",
            sass={"sm_80": ("LDG.E.128", "STS.128", "LDSM.16.M88.4", "HMMA.16816.F32.BF16", "BAR")},
        ),
    ),
    Kernel(
        "ptx",
        "gemm/11_mma",
        entry="gemm",
        idea=twin("cuda"),
        archs=("sm_80",),
        types=(BF16,),
        layouts=("NT",),
        configs=(_TILE | {"PAD": 8},),
        params=_PARAMS,
        launch=_LAUNCH,
        owner=owner_of_mma,
        expect=Expect(
            version="7.0",
            sass={"sm_80": ("LDG.E.128", "STS.128", "LDSM.16.M88.4", "HMMA.16816.F32.BF16", "BAR")},
        ),
    ),
    Kernel(
        "ptx",
        "gemm/12_swizzle",
        entry="gemm",
        idea=twin("cuda"),
        archs=("sm_80",),
        types=(BF16,),
        layouts=("NT",),
        configs=(_TILE,),
        params=_PARAMS,
        launch=_LAUNCH,
        owner=owner_of_mma,
        expect=Expect(
            version="7.0",
            sass={"sm_80": ("LDG.E.128", "STS.128", "LDSM.16.M88.4", "HMMA.16816.F32.BF16", "BAR")},
        ),
    ),
    Kernel(
        "ptx",
        "gemm/13_multistage",
        entry="gemm",
        idea=twin("cuda"),
        archs=("sm_80",),
        types=(BF16,),
        layouts=("NT",),
        configs=(_MULTISTAGE,),
        params=_PARAMS,
        launch=_LAUNCH_RING,
        owner=owner_of_mma,
        expect=Expect(version="7.0", sass={"sm_80": ("LDGSTS.E.BYPASS", "LDGDEPBAR", "LDSM.16", "HMMA.16816", "BAR")}),
    ),
    Kernel(
        "ptx",
        "gemm/14_wide",
        entry="gemm",
        idea=twin("cuda"),
        archs=("sm_80",),
        types=(BF16,),
        layouts=("NT",),
        configs=(_WIDE,),
        params=_PARAMS,
        launch=_LAUNCH_RING,
        owner=owner_of_mma,
        expect=Expect(
            version="7.0",
            sass={"sm_80": ("LDGSTS.E.BYPASS", "LDGDEPBAR", "LDSM.16", "HMMA.16816", "BAR", "STG.E.128")},
        ),
    ),
)
