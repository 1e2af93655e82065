"""The product of 8-bit operands on Hopper: `gemm/25_fast`'s family with rows of 128 elements, scales, promoted sums."""

from lowlevel.catalog.boxes import operand_tile
from lowlevel.catalog.entry import Expect, Kernel, Launch
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
from lowlevel.catalog.gemm_hopper import FAST, FAST_SPACE
from lowlevel.catalog.repack import REPACK, behind_copies
from lowlevel.catalog.space import admits_fp8
from lowlevel.dtypes import FP8

#: 128 elements are as many bytes as 64 of 16 bits: what is said there of tiles, stages and clusters holds here.
_FP8 = {"BK": 128, "PROMOTE": 0}
_PROMOTED = (
    fast_config((256, 128), 4, (1, 2), ALONG_N=0, GPC=1, PDL=1),
    fast_config((128, 192), 5, (2, 1), STORE_BOXES=1, GPC=1, PDL=1),
    fast_config((128, 128), 6, (2, 1), PDL=1),
)

KERNELS: tuple[Kernel, ...] = (
    Kernel(
        "cuda",
        "gemm/26_fp8",
        entry="gemm",
        idea="8-bit operands: twice as many k in the same bytes, a scale a matrix, and sums promoted to fp32 or not",
        archs=("sm_90a",),
        types=(FP8,),
        layouts=("NT",),
        configs=(
            *(config | _FP8 for config in FAST),
            *(config | _FP8 | {"PROMOTE": 128} for config in _PROMOTED),
            _PROMOTED[1] | _FP8 | {"PROMOTE": 256},
        ),
        choose=fewest_clocks,
        clocks=fast_clocks,
        waves=items_and_clusters,
        space=FAST_SPACE | {"PROMOTE": (0,)},
        admits=admits_fp8,
        order=ORDER,
        optional=OPTIONAL,
        params=(
            *("map_A", "map_B", "map_C", "C", "M", "N", "K", "ldc", "workspace", "gpc_of_sm"),
            *("scale_a", "scale_b", "epilogue"),
        ),
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
        epilogues=("none", "bias", "bias_relu", "bias_silu", "residual"),
        owner=owner_in_warpgroups,
        expect=Expect(sass={"sm_90a": ("UTMALDG.2D.MULTICAST", "UTMASTG.2D", "STSM.16.M88.4", "QGMMA", "USETMAXREG")}),
    ),
)
