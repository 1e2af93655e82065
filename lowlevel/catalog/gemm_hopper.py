"""The matmul ladder on Hopper's tensor cores: TMA and wgmma, for sm_90a alone."""

from lowlevel.catalog.boxes import operand_tile
from lowlevel.catalog.entry import Expect, Kernel, Launch
from lowlevel.catalog.repack import REPACK, bytes_of_copies
from lowlevel.catalog.rules import column_of_tiles, owner_of_wgmma, ring_of_boxes, warpgroup_for_64_rows
from lowlevel.dtypes import BF16, FP16

_PARAMS = ("map_A", "map_B", "C", "M", "N", "K", "ldc")
_FINISHED = (*_PARAMS, "epilogue")
_EPILOGUES = ("none", "bias", "bias_relu", "bias_silu", "residual")
_LAYOUTS = ("NT", "NN", "TN", "TT")
_INPUT_BOXES = {"A": operand_tile("A"), "B": operand_tile("B")}
_SQUARE = {"BM": 128, "BN": 128, "BK": 64}
_LAUNCH = Launch(block=warpgroup_for_64_rows, grid=column_of_tiles, shared=ring_of_boxes, workspace=bytes_of_copies)

KERNELS: tuple[Kernel, ...] = (
    Kernel(
        "cuda",
        "gemm/20_tma_wgmma",
        entry="gemm",
        idea="TMA fetches a tile and wgmma multiplies it where it lies: threads only start them",
        archs=("sm_90a",),
        types=(BF16, FP16),
        layouts=_LAYOUTS,
        configs=(_SQUARE,),
        params=_FINISHED,
        launch=_LAUNCH,
        before=REPACK,
        boxes=_INPUT_BOXES,
        epilogues=_EPILOGUES,
        owner=owner_of_wgmma,
        expect=Expect(sass={"sm_90a": ("UTMALDG.2D", "SYNCS", "HGMMA.64x128x16.F32")}),
    ),
    Kernel(
        "cuda",
        "gemm/21_ring",
        entry="gemm",
        idea="a ring of stages: tiles are asked for several k-blocks ahead, and wgmma is waited for one later",
        archs=("sm_90a",),
        types=(BF16, FP16),
        layouts=_LAYOUTS,
        configs=tuple(_SQUARE | {"STAGES": stages} for stages in (3, 4, 6)),
        params=_FINISHED,
        launch=_LAUNCH,
        before=REPACK,
        boxes=_INPUT_BOXES,
        epilogues=_EPILOGUES,
        owner=owner_of_wgmma,
        expect=Expect(sass={"sm_90a": ("UTMALDG.2D", "SYNCS", "HGMMA.64x128x16.F32")}),
    ),
)
