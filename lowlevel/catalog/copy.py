"""Copies: the rate that a kernel which only moves data can reach."""

from lowlevel.catalog.entry import Expect, Kernel, Launch
from lowlevel.catalog.rules import pieces, threads
from lowlevel.dtypes import MOVE32

_COPY = {"THREADS": 256, "UNROLL": 4, "STREAM": 1}

KERNELS = (
    Kernel(
        "cuda",
        "copy/01_vectorised",
        entry="copy",
        idea="16 bytes a thread, four loads in flight before the first store, a block for each neighbouring piece",
        archs=("sm_75",),
        types=(MOVE32,),
        configs=(_COPY, {**_COPY, "STREAM": 0}, {**_COPY, "THREADS": 1024, "UNROLL": 1}),
        params=("A", "C", "bytes"),
        launch=Launch(block=threads, grid=pieces),
        expect=Expect(sass={"sm_75": ("LDG.E.EF.128", "STG.E.EF.128")}),
    ),
)
