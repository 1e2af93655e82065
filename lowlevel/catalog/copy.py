"""Copies: the rate that a kernel which only moves data can reach."""

from lowlevel.catalog.entry import Expect, Kernel, Launch
from lowlevel.catalog.rules import pieces, threads
from lowlevel.dtypes import MOVE32

KERNELS = (
    Kernel(
        "cuda",
        "copy/01_vectorised",
        entry="copy",
        idea="16 bytes a thread, four loads in flight before the first store, a block for each neighbouring piece",
        archs=("sm_75",),
        types=(MOVE32,),
        configs=(
            {"THREADS": 256, "UNROLL": 4, "STREAM": 0},
            {"THREADS": 256, "UNROLL": 4, "STREAM": 1},
            {"THREADS": 256, "UNROLL": 8, "STREAM": 0},
            {"THREADS": 512, "UNROLL": 4, "STREAM": 0},
            {"THREADS": 512, "UNROLL": 4, "STREAM": 1},
            {"THREADS": 1024, "UNROLL": 4, "STREAM": 0},
            {"THREADS": 128, "UNROLL": 8, "STREAM": 0},
            {"THREADS": 1024, "UNROLL": 1, "STREAM": 0},
        ),
        params=("A", "C", "bytes"),
        launch=Launch(block=threads, grid=pieces),
        expect=Expect(sass={"sm_75": ("LDG.E.128", "STG.E.128")}),
    ),
)
