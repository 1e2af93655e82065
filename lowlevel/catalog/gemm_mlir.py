"""The matmul ladder in MLIR. Each file is lowered to PTX for the first of its `archs`."""

from lowlevel.catalog.boxes import operand_tile, output_tile
from lowlevel.catalog.entry import Expect, Kernel, Launch, Rule, twin
from lowlevel.catalog.repack import TMA_ROWS
from lowlevel.catalog.rules import (
    cluster_along_m,
    column_of_tiles,
    one_element_a_thread,
    owner_of_element,
    owner_of_mma,
    owner_of_wgmma,
    ring_and_boxes_of_c,
    ring_of_boxes,
    ring_of_tiles,
    threads_of_warps,
    threads_with_a_producer,
    tiles,
    tiles_in_rounds,
    warpgroup_for_64_rows,
)
from lowlevel.dtypes import BF16, FP16, FP16_ACC16, FP32

_PARAMS = ("A", "B", "C", "M", "N", "K", "lda", "ldb", "ldc")
_TILE = {"BM": 128, "BN": 128, "BK": 64, "WM": 64, "WN": 32}
_WIDE = {"BM": 128, "BN": 256, "BK": 64, "WM": 64, "WN": 64, "STAGES": 3, "MIN_BLOCKS": 1}
_LAUNCH_RING = Launch(block=threads_of_warps, grid=column_of_tiles, shared=ring_of_tiles)
_HOPPER = ("map_A", "map_B", "C", "M", "N", "K", "ldc")
_STORED = ("map_A", "map_B", "map_C", "C", "M", "N", "K", "ldc")
_SQUARE_OF_BOXES = {"BM": 128, "BN": 128, "BK": 64, "STAGES": 3}
_WIDE_OF_BOXES = {"BM": 128, "BN": 256, "BK": 64, "STAGES": 4}
_BOXES = {"A": operand_tile("A"), "B": operand_tile("B")}
_HGMMA = ("UTMALDG.2D", "SYNCS", "HGMMA.64x256x16.F32")
#: nvJitLink makes code to be linked, and then leaves setmaxnreg out.
_NOT_HANDED_OVER = {"'setmaxnreg' ignored to maintain compatibility": "the 168 registers of the start are enough"}
_WHOLE_TILES = (
    Rule(lambda p: all(p.dimensions[name] % 32 == 0 for name in "mnk"), "M, N and K must be multiples of 32"),
    Rule(lambda p: all(p.dimensions[name] % 8 == 0 for name in ("lda", "ldb")), "lda and ldb must be multiples of 8"),
)

KERNELS: tuple[Kernel, ...] = (
    Kernel(
        "mlir",
        "gemm/01_naive",
        entry="gemm",
        idea=twin("cuda"),
        archs=("sm_75",),
        types=(FP32,),
        layouts=("NN",),
        configs=({"BM": 8, "BN": 32},),
        params=_PARAMS,
        launch=Launch(block=one_element_a_thread, grid=tiles),
        owner=owner_of_element,
        expect=Expect(sass={"sm_75": ("FFMA",)}),
    ),
    Kernel(
        "mlir",
        "gemm/02_tiled",
        entry="gemm",
        idea=twin("cuda"),
        archs=("sm_75",),
        types=(FP32,),
        layouts=("NN",),
        configs=({"BM": 32, "BN": 32, "BK": 32},),
        params=_PARAMS,
        launch=Launch(block=one_element_a_thread, grid=tiles),
        owner=owner_of_element,
        expect=Expect(sass={"sm_75": ("STS", "LDS", "FFMA", "BAR")}),
    ),
    Kernel(
        "mlir",
        "gemm/12_swizzle",
        entry="gemm",
        idea=twin("cuda"),
        archs=("sm_80",),
        types=(FP16,),
        layouts=("NT",),
        configs=(_TILE,),
        params=_PARAMS,
        launch=Launch(block=threads_of_warps, grid=tiles),
        owner=owner_of_mma,
        expect=Expect(sass={"sm_80": ("LDG.E.128", "STS.128", "LDSM.16.M88.4", "HMMA.16816.F32", "BAR")}),
    ),
    Kernel(
        "mlir",
        "gemm/13_multistage",
        entry="gemm",
        idea=twin("cuda"),
        archs=("sm_80",),
        types=(FP16,),
        layouts=("NT",),
        configs=(_TILE | {"STAGES": 3},),
        params=_PARAMS,
        launch=_LAUNCH_RING,
        owner=owner_of_mma,
        expect=Expect(sass={"sm_80": ("LDGSTS.E.BYPASS", "LDGDEPBAR", "LDSM.16", "HMMA.16816.F32", "BAR")}),
    ),
    Kernel(
        "mlir",
        "gemm/14_wide",
        entry="gemm",
        idea=twin("cuda"),
        archs=("sm_80",),
        types=(FP16, BF16),
        layouts=("NT",),
        configs=(_WIDE,),
        params=_PARAMS,
        launch=_LAUNCH_RING,
        owner=owner_of_mma,
        expect=Expect(sass={"sm_80": ("LDGSTS.E.BYPASS", "LDGDEPBAR", "LDSM.16", "HMMA.16816", "BAR", "STG.E.128")}),
    ),
    Kernel(
        "mlir",
        "gemm/17_from_linalg",
        entry="gemm_kernel",
        idea="linalg.matmul and a transform script: what is computed apart from how",
        archs=("sm_80",),
        types=(FP16_ACC16,),
        layouts=("NN",),
        configs=({"BM": 32, "BN": 32, "BK": 32, "WM": 32, "WN": 32},),
        params=("M", "N", "K", "lda", "ldb", "ldc", "A", "B", "C"),
        launch=Launch(block=(4, 8, 1), grid=tiles),
        needs=_WHOLE_TILES,
        owner=owner_of_mma,
        expect=Expect(sass={"sm_80": ("LDGSTS.E.BYPASS", "LDGDEPBAR", "LDSM.16", "HMMA.16816.F16", "BAR")}),
    ),
    Kernel(
        "mlir",
        "gemm/21_ring",
        entry="gemm",
        idea=twin("cuda"),
        archs=("sm_90a",),
        types=(BF16, FP16),
        layouts=("NT",),
        configs=(_SQUARE_OF_BOXES,),
        params=_HOPPER,
        launch=Launch(block=warpgroup_for_64_rows, grid=column_of_tiles, shared=ring_of_boxes),
        needs=(TMA_ROWS,),
        boxes=_BOXES,
        owner=owner_of_wgmma,
        expect=Expect(sass={"sm_90a": ("UTMALDG.2D", "SYNCS", "HGMMA.64x128x16.F32")}),
    ),
    Kernel(
        "mlir",
        "gemm/22_warp_specialised",
        entry="gemm",
        idea=twin("cuda"),
        archs=("sm_90a",),
        types=(BF16, FP16),
        layouts=("NT",),
        configs=(_WIDE_OF_BOXES,),
        params=_HOPPER,
        launch=Launch(block=threads_with_a_producer, grid=column_of_tiles, shared=ring_of_boxes),
        needs=(TMA_ROWS,),
        boxes=_BOXES,
        owner=owner_of_wgmma,
        expect=Expect(sass={"sm_90a": _HGMMA}, allow=_NOT_HANDED_OVER),
    ),
    Kernel(
        "mlir",
        "gemm/23_persistent",
        entry="gemm",
        idea=twin("cuda"),
        archs=("sm_90a",),
        types=(BF16, FP16),
        layouts=("NT",),
        configs=(_WIDE_OF_BOXES | {"GROUP": 16},),
        params=_STORED,
        launch=Launch(block=threads_with_a_producer, grid=tiles_in_rounds, shared=ring_and_boxes_of_c),
        needs=(TMA_ROWS,),
        boxes=_BOXES | {"C": output_tile(rows=16)},
        owner=owner_of_wgmma,
        expect=Expect(sass={"sm_90a": (*_HGMMA, "STSM.16.M88.4", "UTMASTG.2D")}, allow=_NOT_HANDED_OVER),
    ),
    Kernel(
        "mlir",
        "gemm/24_cluster",
        entry="gemm",
        idea=twin("cuda"),
        archs=("sm_90a",),
        types=(BF16, FP16),
        layouts=("NT",),
        configs=(_WIDE_OF_BOXES | {"GROUP": 8, "CLUSTER": 2},),
        params=_STORED,
        launch=Launch(
            block=threads_with_a_producer, grid=tiles_in_rounds, shared=ring_and_boxes_of_c, cluster=cluster_along_m
        ),
        needs=(TMA_ROWS,),
        boxes=_BOXES | {"B": operand_tile("B", shared_by="CLUSTER"), "C": output_tile(rows=16)},
        owner=owner_of_wgmma,
        expect=Expect(
            sass={"sm_90a": (*_HGMMA, "STSM.16.M88.4", "UTMASTG.2D", "UTMALDG.2D.MULTICAST", "UCGABAR_ARV")},
            allow=_NOT_HANDED_OVER,
        ),
    ),
)
