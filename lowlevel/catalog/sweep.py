"""Sweeps: a kernel at several values of its compile-time numbers, `BK=8,16,32,64`. The launch follows the numbers."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace

from lowlevel.catalog.entry import Kernel, Variant
from lowlevel.errors import UsageError

#: Number -> its values. Several numbers make the product of their values, the last varying fastest.
Sweep = Mapping[str, Sequence[int]]

WRITTEN_IN_THE_FILE = "its numbers are written in its file; only those of CUDA C++ are set when it is compiled"


def swept(variants: Sequence[Variant], sweep: Sweep) -> list[Variant]:
    """Every variant at every point of the sweep, each once; the numbers that it does not name keep the variant's.

    Kernels whose numbers are written in their files are left out. UsageError when no other is left, and for a number
    that a kernel does not have.
    """
    if not sweep:
        return list(variants)
    able = [v for v in variants if v.kernel.takes_numbers]
    if not able:
        labels = ", ".join(kernel.shown for kernel in _kernels(variants))
        raise UsageError(f"no sweep of {labels}: {WRITTEN_IN_THE_FILE}")
    for kernel in _kernels(able):
        for name in sweep:
            if name not in kernel.configs[0]:
                raise UsageError(kernel.lacks(name))
    points = [dict(zip(sweep, values, strict=True)) for values in itertools.product(*sweep.values())]
    found = [replace(v.with_config(**point), chosen_by="sweep") for v in able for point in points]
    return list({v.name: v for v in found}.values())


def left_out(variants: Sequence[Variant]) -> str:
    """What a sweep says of the kernels that it leaves out; empty when there are none."""
    labels = [kernel.shown for kernel in _kernels(variants) if not kernel.takes_numbers]
    return f"the sweep leaves out {', '.join(labels)}: {WRITTEN_IN_THE_FILE}" if labels else ""


def _kernels(variants: Sequence[Variant]) -> list[Kernel]:
    return list(dict.fromkeys(v.kernel for v in variants))
