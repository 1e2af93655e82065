"""Copies: the rate that a kernel which only moves data can reach."""

from lowlevel.catalog.entry import Expect, Kernel, Launch
from lowlevel.catalog.rules import resident_threads, threads
from lowlevel.dtypes import MOVE32

KERNELS = (
    Kernel(
        "cuda",
        "copy/01_vectorised",
        entry="copy",
        idea="16 bytes a thread and four loads in flight before the first store",
        archs=("sm_75",),
        types=(MOVE32,),
        configs=({"THREADS": 512},),
        params=("A", "C", "bytes"),
        launch=Launch(block=threads, grid=resident_threads),
        expect=Expect(sass={"sm_75": ("LDG.E.128", "STG.E.128")}),
    ),
)
