"""The matmul ladder on Hopper's tensor cores: TMA and wgmma, for sm_90a alone."""

from lowlevel.catalog.boxes import operand_tile, output_tile
from lowlevel.catalog.entry import Expect, Kernel, Launch, twin
from lowlevel.catalog.fast import (
    OPTIONAL,
    ORDER,
    box_of_c,
    cluster_of,
    fast_clocks,
    fast_config,
    fast_grid,
    fast_shared,
    fast_threads,
    fast_workspace,
    fewest_clocks,
    items_and_clusters,
    owner_in_warpgroups,
    programmatic,
)
from lowlevel.catalog.repack import REPACK, TMA_ROWS, behind_copies, bytes_of_copies
from lowlevel.catalog.rules import (
    cluster_along_m,
    column_of_tiles,
    owner_of_wgmma,
    ring_and_boxes_of_c,
    ring_of_boxes,
    threads_with_a_producer,
    tiles_in_rounds,
    warpgroup_for_64_rows,
)
from lowlevel.catalog.space import admits_fast
from lowlevel.dtypes import BF16, FP16

_PARAMS = ("map_A", "map_B", "C", "M", "N", "K", "ldc")
_FINISHED = (*_PARAMS, "epilogue")
_EPILOGUES = ("none", "bias", "bias_relu", "bias_silu", "residual")
_LAYOUTS = ("NT", "NN", "TN", "TT")
_INPUT_BOXES = {"A": operand_tile("A"), "B": operand_tile("B")}
_ALL_BOXES = _INPUT_BOXES | {"C": output_tile(rows=16)}
_STORED_PARAMS = ("map_A", "map_B", "map_C", "C", "M", "N", "K", "ldc")
_STORED = (*_STORED_PARAMS, "epilogue")
_SQUARE = {"BM": 128, "BN": 128, "BK": 64}
_WIDE = {"BM": 128, "BN": 256, "BK": 64}
_SASS = ("UTMALDG.2D", "SYNCS", "HGMMA.64x256x16.F32")
#: nvJitLink makes code to be linked, and then leaves setmaxnreg out.
_NOT_HANDED_OVER = {"'setmaxnreg' ignored to maintain compatibility": "the 168 registers of the start are enough"}
_LAUNCH = Launch(block=warpgroup_for_64_rows, grid=column_of_tiles, shared=ring_of_boxes, workspace=bytes_of_copies)


_SMALL = {"CONSUMERS": 1, "PDL": 1}
#: Clusters of 2 x 1 share B and run along n; those of 1 x 2 share A and run along m. Blocks alone whose consumers share
#: a tile are for a tile an SM: an edge leaves no half of a pair without work, and nobody waits for a turn. The last cut
#: k, for few tiles. The count of clocks does not see SNAKE: whoever has it is taken only where it is named or tuned.
FAST = (
    fast_config((128, 256), 4, (2, 1), OVERLAP=1, GPC=1),
    fast_config((256, 192), 3, (1, 2), OVERLAP=2, ALONG_N=0, GPC=1),
    fast_config((128, 256), 4, (2, 1), OVERLAP=1, GPC=1, SNAKE=1),
    fast_config((256, 192), 3, (1, 2), OVERLAP=2, ALONG_N=0, GPC=1, SNAKE=2),
    fast_config((256, 128), 4, (1, 2), OVERLAP=2, ALONG_N=0, PDL=1),
    fast_config((128, 256), 4, (2, 1), OVERLAP=1, PDL=1),
    fast_config((128, 192), 5, (2, 1), PINGPONG=1, STORE_BOXES=1, GPC=1, PDL=1),
    fast_config((128, 192), 5, (2, 1), PINGPONG=1, STORE_BOXES=1, PDL=1),
    fast_config((128, 128), 6, (2, 1), PINGPONG=1, PDL=1),
    fast_config((128, 144), 4, PINGPONG=1, PDL=1),
    fast_config((128, 144), 4, PINGPONG=1, STORE_BOXES=1, ALONG_N=0, GROUP=4, PDL=1),
    fast_config((128, 192), 5, STORE_BOXES=1, OVERLAP=1, PDL=1),
    fast_config((128, 160), 4, STORE_BOXES=1, OVERLAP=1, PDL=1),
    fast_config((128, 128), 6, OVERLAP=1, PDL=1),
    fast_config((64, 128), 8, **_SMALL),
    fast_config((64, 64), 8, **_SMALL),
    fast_config((128, 192), 5, STORE_BOXES=1, PDL=1, SPLITS=2),
    fast_config((128, 128), 6, PDL=1, SPLITS=4),
    fast_config((128, 64), 8, (2, 1), PDL=1, SPLITS=3),
    fast_config((64, 64), 8, **_SMALL, SPLITS=4),
)
#: BK is not here, and keeps the first configuration's value.
FAST_SPACE = {
    "BM": (64, 128, 256),
    "BN": (64, 128, 144, 160, 176, 192, 256),
    "STAGES": (3, 4, 5, 6, 8),
    "CONSUMERS": (1, 2),
    "PINGPONG": (0, 1),
    "CLUSTER_M": (1, 2),
    "CLUSTER_N": (1, 2),
    "STORE_BOXES": (1, 2),
    "OVERLAP": (0, 1, 2),
    "ALONG_N": (0, 1),
    "GROUP": (8, 4, 16),
    "GPC": (0, 1, 2),
    "PDL": (1,),
    "SPLITS": (1, 2, 3, 4, 6, 8),
    "SNAKE": (0, 1, 2),
}

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
    Kernel(
        "cuda",
        "gemm/22_warp_specialised",
        entry="gemm",
        idea="one warpgroup copies, two multiply with its registers: a tile twice as large, and nobody waits for all",
        archs=("sm_90a",),
        types=(BF16, FP16),
        layouts=_LAYOUTS,
        configs=(_WIDE | {"STAGES": 4}, _WIDE | {"STAGES": 3}, _SQUARE | {"STAGES": 6}),
        params=_FINISHED,
        launch=Launch(
            block=threads_with_a_producer, grid=column_of_tiles, shared=ring_of_boxes, workspace=bytes_of_copies
        ),
        before=REPACK,
        boxes=_INPUT_BOXES,
        epilogues=_EPILOGUES,
        owner=owner_of_wgmma,
        expect=Expect(sass={"sm_90a": (*_SASS, "USETMAXREG")}),
    ),
    Kernel(
        "cuda",
        "gemm/23_persistent",
        entry="gemm",
        idea="a block stays: the next tile's copies and the last one's stores run while this one is multiplied",
        archs=("sm_90a",),
        types=(BF16, FP16),
        layouts=_LAYOUTS,
        configs=(
            _WIDE | {"STAGES": 4, "GROUP": 16},
            _WIDE | {"STAGES": 4, "GROUP": 8},
            _SQUARE | {"STAGES": 6, "GROUP": 16},
        ),
        params=_STORED,
        launch=Launch(
            block=threads_with_a_producer, grid=tiles_in_rounds, shared=ring_and_boxes_of_c, workspace=bytes_of_copies
        ),
        before=REPACK,
        boxes=_ALL_BOXES,
        epilogues=_EPILOGUES,
        owner=owner_of_wgmma,
        expect=Expect(sass={"sm_90a": (*_SASS, "USETMAXREG", "STSM.16.M88.4", "UTMASTG.2D")}),
    ),
    Kernel(
        "cuda",
        "gemm/24_cluster",
        entry="gemm",
        idea="a cluster of two blocks reads what both need once: each asks for half of it, delivered to both",
        archs=("sm_90a",),
        types=(BF16, FP16),
        layouts=_LAYOUTS,
        configs=(
            _WIDE | {"STAGES": 4, "GROUP": 8, "CLUSTER": 2},
            _WIDE | {"STAGES": 4, "GROUP": 4, "CLUSTER": 2},
            _SQUARE | {"STAGES": 6, "GROUP": 8, "CLUSTER": 2},
        ),
        params=_STORED,
        launch=Launch(
            block=threads_with_a_producer,
            grid=tiles_in_rounds,
            shared=ring_and_boxes_of_c,
            cluster=cluster_along_m,
            workspace=bytes_of_copies,
        ),
        before=REPACK,
        boxes=_ALL_BOXES | {"B": operand_tile("B", shared_by="CLUSTER")},
        epilogues=_EPILOGUES,
        owner=owner_of_wgmma,
        expect=Expect(
            sass={
                "sm_90a": (*_SASS, "USETMAXREG", "STSM.16.M88.4", "UTMASTG.2D", "UTMALDG.2D.MULTICAST", "UCGABAR_ARV")
            }
        ),
    ),
    Kernel(
        "cuda",
        "gemm/25_fast",
        entry="gemm",
        idea="one source for every size: tiles, clusters, who multiplies while who stores, and neighbours on one GPC",
        archs=("sm_90a",),
        types=(BF16, FP16),
        layouts=_LAYOUTS,
        configs=FAST,
        choose=fewest_clocks,
        clocks=fast_clocks,
        waves=items_and_clusters,
        space=FAST_SPACE,
        admits=admits_fast,
        order=ORDER,
        optional=OPTIONAL,
        params=("map_A", "map_B", "map_C", "C", "M", "N", "K", "ldc", "workspace", "gpc_of_sm", "epilogue"),
        launch=Launch(
            block=fast_threads,
            grid=fast_grid,
            shared=fast_shared,
            cluster=cluster_of,
            programmatic=programmatic,
            workspace=behind_copies(fast_workspace),
        ),
        before=REPACK,
        boxes={"A": operand_tile("A", "CLUSTER_N"), "B": operand_tile("B", "CLUSTER_M"), "C": box_of_c},
        epilogues=_EPILOGUES,
        owner=owner_in_warpgroups,
        expect=Expect(sass={"sm_90a": ("UTMALDG.2D.MULTICAST", "UTMASTG.2D", "STSM.16.M88.4", "HGMMA", "USETMAXREG")}),
    ),
    Kernel(
        "ptx",
        "gemm/20_tma_wgmma",
        entry="gemm",
        idea=twin("cuda"),
        archs=("sm_90a",),
        types=(BF16,),
        layouts=("NT",),
        configs=(_SQUARE,),
        params=_PARAMS,
        launch=Launch(block=warpgroup_for_64_rows, grid=column_of_tiles),  # its shared memory is static
        needs=(TMA_ROWS,),
        boxes=_INPUT_BOXES,
        owner=owner_of_wgmma,
        expect=Expect(version="8.0", sass={"sm_90a": ("UTMALDG.2D", "SYNCS", "HGMMA.64x128x16.F32.BF16")}),
    ),
    Kernel(
        "ptx",
        "gemm/21_ring",
        entry="gemm",
        idea=twin("cuda"),
        archs=("sm_90a",),
        types=(BF16,),
        layouts=("NT",),
        configs=(_SQUARE | {"STAGES": 3},),
        params=_PARAMS,
        launch=Launch(block=warpgroup_for_64_rows, grid=column_of_tiles, shared=ring_of_boxes),
        needs=(TMA_ROWS,),
        boxes=_INPUT_BOXES,
        owner=owner_of_wgmma,
        expect=Expect(version="8.0", sass={"sm_90a": ("UTMALDG.2D", "SYNCS", "HGMMA.64x128x16.F32.BF16")}),
    ),
    Kernel(
        "ptx",
        "gemm/22_warp_specialised",
        entry="gemm",
        idea=twin("cuda"),
        archs=("sm_90a",),
        types=(BF16,),
        layouts=("NT",),
        configs=(_WIDE | {"STAGES": 4},),
        params=_PARAMS,
        launch=Launch(block=threads_with_a_producer, grid=column_of_tiles, shared=ring_of_boxes),
        needs=(TMA_ROWS,),
        boxes=_INPUT_BOXES,
        owner=owner_of_wgmma,
        expect=Expect(version="8.0", sass={"sm_90a": _SASS}, allow=_NOT_HANDED_OVER),
    ),
    Kernel(
        "ptx",
        "gemm/23_persistent",
        entry="gemm",
        idea=twin("cuda"),
        archs=("sm_90a",),
        types=(BF16,),
        layouts=("NT",),
        configs=(_WIDE | {"STAGES": 4, "GROUP": 16},),
        params=_STORED_PARAMS,
        launch=Launch(block=threads_with_a_producer, grid=tiles_in_rounds, shared=ring_and_boxes_of_c),
        needs=(TMA_ROWS,),
        boxes=_ALL_BOXES,
        owner=owner_of_wgmma,
        expect=Expect(version="8.0", sass={"sm_90a": (*_SASS, "STSM.16.M88.4", "UTMASTG.2D")}, allow=_NOT_HANDED_OVER),
    ),
    Kernel(
        "ptx",
        "gemm/24_cluster",
        entry="gemm",
        idea=twin("cuda"),
        archs=("sm_90a",),
        types=(BF16,),
        layouts=("NT",),
        configs=(_WIDE | {"STAGES": 4, "GROUP": 8, "CLUSTER": 2},),
        params=_STORED_PARAMS,
        launch=Launch(
            block=threads_with_a_producer, grid=tiles_in_rounds, shared=ring_and_boxes_of_c, cluster=cluster_along_m
        ),
        needs=(TMA_ROWS,),
        boxes=_ALL_BOXES | {"B": operand_tile("B", shared_by="CLUSTER")},
        owner=owner_of_wgmma,
        expect=Expect(
            version="8.0",
            sass={"sm_90a": (*_SASS, "STSM.16.M88.4", "UTMASTG.2D", "UTMALDG.2D.MULTICAST", "UCGABAR_ARV")},
            allow=_NOT_HANDED_OVER,
        ),
    ),
)
