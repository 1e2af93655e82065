"""The matmul ladder. Numbers are shared by the languages: the same number is the same algorithm."""

from lowlevel.catalog.entry import Expect, Kernel, Launch, twin
from lowlevel.catalog.rules import one_element_a_thread, owner_of_element, owner_of_fours, tiles
from lowlevel.dtypes import FP32

_PARAMS = ("A", "B", "C", "M", "N", "K", "lda", "ldb", "ldc")
_NAIVE = {"BM": 8, "BN": 32}
_TILED = {"BM": 32, "BN": 32, "BK": 32}
_REGISTER_TILE = {"BM": 64, "BN": 64, "BK": 8}
_ASYNC = {"BM": 128, "BN": 128, "BK": 8}
_LAUNCH = Launch(block=one_element_a_thread, grid=tiles)

KERNELS = (
    Kernel(
        "cuda",
        "gemm/01_naive",
        entry="gemm",
        idea="one thread an element: the product as its formula says it",
        archs=("sm_75",),
        types=(FP32,),
        layouts=("NN",),
        configs=(_NAIVE,),
        params=_PARAMS,
        launch=_LAUNCH,
        owner=owner_of_element,
        expect=Expect(sass={"sm_75": ("FFMA",)}),
    ),
    Kernel(
        "cuda",
        "gemm/02_tiled",
        entry="gemm",
        idea="tiles in shared memory: what is loaded once is used by 32 threads",
        archs=("sm_75",),
        types=(FP32,),
        layouts=("NN",),
        configs=(_TILED,),
        params=_PARAMS,
        launch=_LAUNCH,
        owner=owner_of_element,
        expect=Expect(sass={"sm_75": ("STS", "LDS", "FFMA", "BAR")}),
    ),
    Kernel(
        "ptx",
        "gemm/01_naive",
        entry="gemm",
        idea=twin("cuda"),
        archs=("sm_75",),
        types=(FP32,),
        layouts=("NN",),
        configs=(_NAIVE,),
        params=_PARAMS,
        launch=_LAUNCH,
        owner=owner_of_element,
        expect=Expect(version="6.3", sass={"sm_75": ("FFMA",)}),
    ),
    Kernel(
        "ptx",
        "gemm/02_tiled",
        entry="gemm",
        idea=twin("cuda"),
        archs=("sm_75",),
        types=(FP32,),
        layouts=("NN",),
        configs=(_TILED,),
        params=_PARAMS,
        launch=_LAUNCH,
        owner=owner_of_element,
        expect=Expect(
            version="6.3",
            sass={"sm_75": ("STS", "LDS", "FFMA", "BAR")},
            allow={".minnctapersm will be ignored": "an SM of sm_75 holds 1024 threads: one block, not two"},
        ),
    ),
    Kernel(
        "ptx",
        "gemm/04_register_tile",
        entry="gemm",
        idea="4 x 4 elements in each thread's registers: two shared loads for 16 FMAs",
        archs=("sm_75",),
        types=(FP32,),
        layouts=("NN",),
        configs=(_REGISTER_TILE,),
        params=_PARAMS,
        launch=Launch(block=256, grid=tiles),
        owner=owner_of_fours,
        expect=Expect(
            version="6.3",
            sass={"sm_75": ("STS", "LDS.U.128", "FFMA", "BAR"), "sm_80": ("STS", "LDS.128", "FFMA", "BAR")},
        ),
    ),
    Kernel(
        "ptx",
        "gemm/07_async",
        entry="gemm",
        idea="cp.async: the next tiles arrive while these are multiplied; 8 x 8 elements a thread",
        archs=("sm_80",),
        types=(FP32,),
        layouts=("NN",),
        configs=(_ASYNC,),
        params=_PARAMS,
        launch=Launch(block=256, grid=tiles),
        owner=owner_of_fours,
        expect=Expect(
            version="7.0",
            sass={"sm_80": ("LDGSTS.E.BYPASS.128", "LDGDEPBAR", "LDS.128", "FFMA", "BAR", "STG.E.128")},
        ),
    ),
)
