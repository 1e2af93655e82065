"""Transposes: C[n][m] = A[m][n]."""

from lowlevel.catalog.entry import Expect, Kernel, Launch, twin
from lowlevel.catalog.rules import rows_of_tile, tiles
from lowlevel.dtypes import MOVE16, MOVE32

_PARAMS = ("A", "C", "M", "N", "lda", "ldc")
_TILE = {"BM": 32, "BN": 32, "ROWS": 8}

KERNELS = (
    Kernel(
        "cuda",
        "transpose/01_naive",
        entry="transpose",
        idea="read along rows, write along columns: every store of a warp touches 32 lines",
        archs=("sm_75",),
        types=(MOVE32, MOVE16),
        configs=(_TILE,),
        params=_PARAMS,
        launch=Launch(block=rows_of_tile, grid=tiles),
        expect=Expect(sass={"sm_75": ("LDG", "STG")}),
    ),
    Kernel(
        "ptx",
        "transpose/01_naive",
        entry="transpose",
        idea=twin("cuda"),
        archs=("sm_75",),
        types=(MOVE32,),
        configs=(_TILE,),
        params=_PARAMS,
        launch=Launch(block=rows_of_tile, grid=tiles),
        expect=Expect(version="6.3", sass={"sm_75": ("LDG", "STG")}),
    ),
)
