"""Transposes: C[n][m] = A[m][n]."""

from lowlevel.catalog.entry import Expect, Kernel, Launch, twin
from lowlevel.catalog.rules import rows_of_tile, square_tiles, threads, tiles, tiles_in_order, warp_rows
from lowlevel.dtypes import MOVE16, MOVE32

_PARAMS = ("A", "C", "M", "N", "lda", "ldc")
_TILE = {"BM": 32, "BN": 32, "ROWS": 8}
# Sides of a tile in words of 4 bytes (02 to 04) or in vectors of 16 (05), so that a configuration suits both types.
_WORDS = {"TILE": 32, "ROWS": 8}
_WORD_LAUNCH = Launch(block=warp_rows, grid=square_tiles(4))
_SWIZZLED = {"TILE_M": 64, "TILE_N": 64, "ROWS": 8, "GROUP": 256}
_SWIZZLED_LAUNCH = Launch(block=warp_rows, grid=tiles_in_order(4))
_VECTORS = {"TILE_M": 16, "TILE_N": 16, "THREADS": 256, "GROUP": 256, "STREAM": 1}

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
        "cuda",
        "transpose/02_shared",
        entry="transpose",
        idea="a tile in shared memory: both sides of device memory run along rows",
        archs=("sm_75",),
        types=(MOVE32, MOVE16),
        configs=(_WORDS, {**_WORDS, "ROWS": 16}),
        params=_PARAMS,
        launch=_WORD_LAUNCH,
        expect=Expect(sass={"sm_75": ("LDG", "STS", "BAR", "LDS", "STG")}),
    ),
    Kernel(
        "cuda",
        "transpose/03_padded",
        entry="transpose",
        idea="one word of padding a row: a column of the tile lies in 32 banks",
        archs=("sm_75",),
        types=(MOVE32, MOVE16),
        configs=(_WORDS, {**_WORDS, "ROWS": 16}),
        params=_PARAMS,
        launch=_WORD_LAUNCH,
        expect=Expect(sass={"sm_75": ("LDG", "STS", "BAR", "LDS", "STG")}),
    ),
    Kernel(
        "cuda",
        "transpose/04_swizzled",
        entry="transpose",
        idea="XOR of a word's column with its row: no bank conflicts and no padding, tiles of any power of two",
        archs=("sm_75",),
        types=(MOVE32, MOVE16),
        configs=(_SWIZZLED, {**_SWIZZLED, "GROUP": 8}, {**_SWIZZLED, "TILE_N": 32}),
        params=_PARAMS,
        launch=_SWIZZLED_LAUNCH,
        expect=Expect(sass={"sm_75": ("LDG", "STS", "BAR", "LDS", "STG")}),
    ),
    Kernel(
        "cuda",
        "transpose/05_vectorised",
        entry="transpose",
        idea="16 bytes an access: sub-tiles are transposed in registers, shared memory regroups whole vectors",
        archs=("sm_75",),
        types=(MOVE32, MOVE16),
        configs=(_VECTORS, {**_VECTORS, "GROUP": 8}, {**_VECTORS, "STREAM": 0}),
        params=_PARAMS,
        launch=Launch(block=threads, grid=tiles_in_order(16)),
        expect=Expect(
            sass={
                "sm_75": ("LDG.E.EF.128", "STS.128", "BAR", "LDS.U.128", "STG.E.EF.128"),
                "sm_80": ("LDG.E.EF.128", "STS.128", "BAR", "LDS.128", "STG.E.EF.128"),
            },
            allow={"minnctapersm will be ignored": "an SM of sm_75 holds 1024 threads: it has registers to spare"},
        ),
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
    Kernel(
        "ptx",
        "transpose/03_padded",
        entry="transpose",
        idea=twin("cuda"),
        archs=("sm_75",),
        types=(MOVE32,),
        configs=(_WORDS,),
        params=_PARAMS,
        launch=_WORD_LAUNCH,
        expect=Expect(version="6.3", sass={"sm_75": ("LDG", "STS", "BAR", "LDS", "STG")}),
    ),
    Kernel(
        "ptx",
        "transpose/04_swizzled",
        entry="transpose",
        idea=twin("cuda"),
        archs=("sm_75",),
        types=(MOVE32,),
        configs=(_SWIZZLED,),
        params=_PARAMS,
        launch=_SWIZZLED_LAUNCH,
        expect=Expect(version="6.3", sass={"sm_75": ("LDG", "STS", "BAR", "LDS", "STG")}),
    ),
)
