"""The matmul ladder on Ampere's tensor cores: mma.sync, for sm_80 and anything newer."""

from lowlevel.catalog.entry import Kernel

KERNELS: tuple[Kernel, ...] = ()
