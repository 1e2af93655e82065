"""The matmul ladder's split-K rungs, for few tiles and a long K: mma.sync, for sm_80 and anything newer, and wgmma."""

from lowlevel.catalog.boxes import operand_tile
from lowlevel.catalog.entry import Expect, Kernel, Launch, twin
from lowlevel.catalog.repack import REPACK, behind_copies
from lowlevel.catalog.rules import (
    cluster_of_tiles,
    least_clocks_in_clusters,
    least_clocks_together,
    least_clocks_while_there,
    owner_of_wgmma,
    programmatic_or_not,
    ring_of_boxes,
    ring_of_operands,
    ring_of_tiles,
    slices_at_once,
    slices_in_a_row,
    slices_of_tiles,
    sums_at_once,
    sums_of_slices,
    sums_of_warps,
    threads_of_warps,
    threads_with_a_copying_warp,
)
from lowlevel.dtypes import BF16, FP16

_LAYOUTS = ("NT", "NN", "TN", "TT")
_EPILOGUES = ("none", "bias", "bias_relu", "bias_silu", "residual")
_SPLIT_PARAMS = ("A", "B", "C", "M", "N", "K", "lda", "ldb", "ldc", "workspace")


def _split(tile: tuple[int, int, int], warp: tuple[int, int], stages: int, splits: int) -> dict[str, int]:
    (m, n, k), (warp_m, warp_n) = tile, warp
    return {"BM": m, "BN": n, "BK": k, "WM": warp_m, "WN": warp_n, "STAGES": stages, "SPLITS": splits}


#: For few tiles, more and more, and for so many that K need not be cut.
_ADD_TOGETHER = (
    _split((64, 64, 128), (32, 16), 4, 32),
    _split((64, 64, 64), (32, 16), 9, 32),
    _split((64, 64, 64), (32, 16), 9, 16),
    _split((64, 64, 64), (32, 16), 9, 8),
    _split((64, 64, 64), (32, 32), 6, 4),
    _split((64, 64, 64), (32, 32), 6, 2),
    _split((128, 128, 64), (64, 64), 3, 2),
    _split((128, 128, 64), (64, 64), 3, 1),
)


#: Numbers that 16's first names did not have.
_OPTIONAL = {"KGROUPS": 1}


def _meet(tile, warp, stages, splits, looks, pdl=0, prefetch=0, **groups) -> dict[str, int]:
    numbers = {"LOOKS": looks, "PDL": pdl, "PREFETCH": prefetch}
    return _split(tile, warp, stages, splits) | numbers | _OPTIONAL | groups


#: PDL = 2 where blocks are as many as SMs: 132 of an H200, 4 tiles of 64 x 64. Where tiles are many, one adds up alone.
#: The last is the PTX kernel's.
_WHO_IS_THERE = (
    _meet((64, 64, 128), (32, 32), 4, 32, 64),
    _meet((64, 64, 128), (32, 32), 3, 33, 64, 2, 32),
    _meet((64, 64, 128), (32, 32), 4, 32, 64, 1),
    _meet((128, 64, 64), (32, 32), 6, 16, 64),
    _meet((128, 64, 64), (32, 32), 6, 16, 64, 1),
    _meet((64, 64, 128), (32, 32), 4, 27, 64),
    _meet((64, 64, 64), (32, 16), 9, 16, 64),
    _meet((64, 64, 64), (32, 16), 9, 8, 64),
    _meet((32, 64, 128), (16, 16), 4, 16, 64),
    _meet((32, 64, 128), (16, 16), 4, 16, 0),
    _meet((64, 64, 64), (32, 32), 6, 4, 0),
    _meet((64, 64, 64), (32, 32), 6, 2, 0),
    _meet((128, 128, 64), (64, 64), 3, 2, 0),
    _meet((128, 128, 64), (64, 64), 3, 1, 0),
    _meet((32, 64, 128), (32, 32), 4, 16, 0, KGROUPS=4),
)


def _clusters(cluster, stages, splits, pdl=0, prefetch=0) -> dict[str, int]:
    (m, n), tile = cluster, {"BM": 64, "BN": 64, "BK": 64}
    numbers = tile | {"STAGES": stages, "SPLITS": splits, "CLUSTER_M": m, "CLUSTER_N": n}
    return numbers | {"LOOKS": 64, "PDL": pdl, "PREFETCH": prefetch}


#: 4 tiles on all SMs but 12, or on all; then more tiles.
_IN_CLUSTERS = (
    _clusters((2, 2), 9, 30),
    _clusters((2, 2), 9, 30, 1),
    _clusters((1, 2), 7, 33, 2, 1),
    _clusters((2, 2), 12, 15, 1),
    _clusters((2, 2), 12, 7, 1),
    _clusters((2, 2), 12, 3, 1),
)
_TWIN = _split((32, 64, 128), (32, 32), 4, 16) | {"KGROUPS": 4}

KERNELS = (
    Kernel(
        "cuda",
        "gemm/15_split_k_cooperative",
        entry="gemm",
        idea="K in slices, a block each; a barrier among the blocks of a tile, then all add up",
        archs=("sm_80",),
        types=(BF16, FP16),
        layouts=_LAYOUTS,
        configs=_ADD_TOGETHER,
        choose=least_clocks_together,
        params=(*_SPLIT_PARAMS, "epilogue"),
        launch=Launch(
            block=threads_of_warps,
            grid=slices_at_once,
            shared=ring_of_tiles,
            cooperative=True,
            workspace=sums_at_once,
        ),
        epilogues=_EPILOGUES,
        expect=Expect(sass={"sm_80": ("LDGSTS.E.BYPASS.128", "LDSM.16", "HMMA.16816.F32", "LDG.E.STRONG.GPU")}),
    ),
    Kernel(
        "cuda",
        "gemm/16_split_k",
        entry="gemm",
        idea="K in slices, a block each; nobody must wait: the last of a tile adds up what the others have not",
        archs=("sm_80",),
        types=(BF16, FP16),
        layouts=_LAYOUTS,
        configs=_WHO_IS_THERE,
        choose=least_clocks_while_there,
        optional=_OPTIONAL,
        params=(*_SPLIT_PARAMS, "epilogue"),
        launch=Launch(
            block=threads_of_warps,
            grid=slices_of_tiles,
            shared=ring_of_tiles,
            programmatic=programmatic_or_not,
            workspace=sums_of_warps,
        ),
        epilogues=_EPILOGUES,
        expect=Expect(sass={"sm_80": ("LDGSTS.E.BYPASS.128", "LDSM.16", "HMMA.16816.F32", "ATOMG.E.ADD")}),
    ),
    Kernel(
        "cuda",
        "gemm/27_split_k_cluster",
        entry="gemm",
        idea="K in slices, the tiles of a slice in a cluster: what two blocks need is read once",
        archs=("sm_90a",),
        types=(BF16, FP16),
        layouts=_LAYOUTS,
        configs=_IN_CLUSTERS,
        choose=least_clocks_in_clusters,
        params=("map_A", "map_B", "C", "M", "N", "K", "ldc", "workspace", "epilogue"),
        launch=Launch(
            block=threads_with_a_copying_warp,
            grid=slices_of_tiles,
            shared=ring_of_boxes,
            cluster=cluster_of_tiles,
            programmatic=programmatic_or_not,
            workspace=behind_copies(sums_of_warps),
        ),
        before=REPACK,
        boxes={"A": operand_tile("A", "CLUSTER_N"), "B": operand_tile("B", "CLUSTER_M")},
        epilogues=_EPILOGUES,
        owner=owner_of_wgmma,
        expect=Expect(sass={"sm_90a": ("UTMALDG.2D.MULTICAST", "UCGABAR_ARV", "HGMMA.64x64x16.F32", "ATOMG.E.ADD")}),
    ),
    Kernel(
        "ptx",
        "gemm/16_split_k",
        entry="gemm",
        idea=twin("cuda"),
        archs=("sm_80",),
        types=(BF16,),
        layouts=("NT",),
        configs=(_TWIN,),
        params=_SPLIT_PARAMS,
        launch=Launch(
            block=threads_of_warps,
            grid=slices_in_a_row,
            shared=ring_of_operands,
            workspace=sums_of_slices,
        ),
        expect=Expect(
            version="7.0",
            sass={"sm_80": ("LDGSTS.E.BYPASS.128", "LDSM.16", "HMMA.16816.F32", "ATOMG.E.INC")},
        ),
    ),
)
