"""The matmul ladder on Ampere's tensor cores: mma.sync, for sm_80 and anything newer."""

from lowlevel.catalog.entry import Expect, Kernel, Launch, twin
from lowlevel.catalog.rules import owner_in_strips, owner_of_mma, threads_of_warps, tiles
from lowlevel.dtypes import BF16, FP16, FP16_ACC16

_PLAIN = ("A", "B", "C", "M", "N", "K", "lda", "ldb", "ldc")
_PARAMS = (*_PLAIN, "epilogue")
_EPILOGUES = ("none", "bias", "bias_relu", "bias_silu", "residual")
_TILE = {"BM": 128, "BN": 128, "BK": 64, "WM": 64, "WN": 32}
_LAUNCH = Launch(block=threads_of_warps, grid=tiles)

KERNELS: tuple[Kernel, ...] = (
    Kernel(
        "cuda",
        "gemm/10_wmma",
        entry="gemm",
        idea="WMMA: a warp multiplies 16 x 16 x 16 at once, and nobody says who holds what",
        archs=("sm_80",),
        types=(BF16, FP16),
        layouts=("NT",),
        configs=(_TILE | {"PAD": 0}, _TILE | {"PAD": 8}),
        params=_PARAMS,
        launch=_LAUNCH,
        epilogues=_EPILOGUES,
        owner=owner_in_strips,
        expect=Expect(sass={"sm_80": ("LDG.E.128", "STS.128", "LDSM", "HMMA.16816.F32", "BAR")}),
    ),
    Kernel(
        "cuda",
        "gemm/11_mma",
        entry="gemm",
        idea="ldmatrix and mma.sync: every lane knows its elements, rows padded against bank conflicts",
        archs=("sm_80",),
        types=(BF16, FP16, FP16_ACC16),
        layouts=("NT",),
        configs=(_TILE | {"PAD": 8}, _TILE | {"PAD": 0}),
        params=_PARAMS,
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
        params=_PARAMS,
        launch=_LAUNCH,
        epilogues=_EPILOGUES,
        owner=owner_of_mma,
        expect=Expect(sass={"sm_80": ("LDG.E.128", "STS.128", "LDSM.16.M88.4", "HMMA.16816", "BAR")}),
    ),
    Kernel(
        "ptx",
        "gemm/10_wmma",
        entry="gemm",
        idea=twin("cuda"),
        archs=("sm_80",),
        types=(BF16,),
        layouts=("NT",),
        configs=(_TILE | {"PAD": 0},),
        params=_PLAIN,
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
        params=_PLAIN,
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
        params=_PLAIN,
        launch=_LAUNCH,
        owner=owner_of_mma,
        expect=Expect(
            version="7.0",
            sass={"sm_80": ("LDG.E.128", "STS.128", "LDSM.16.M88.4", "HMMA.16816.F32.BF16", "BAR")},
        ),
    ),
)
