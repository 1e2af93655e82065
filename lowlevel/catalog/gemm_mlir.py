"""The matmul ladder in MLIR. Each file is lowered to PTX for the first of its `archs`."""

from lowlevel.catalog.entry import Expect, Kernel, Launch, twin
from lowlevel.catalog.rules import one_element_a_thread, owner_of_element, tiles
from lowlevel.dtypes import FP32

_PARAMS = ("A", "B", "C", "M", "N", "K", "lda", "ldb", "ldc")

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
)
