"""What the hardware allows, and whether a figure can be true."""

from __future__ import annotations

from lowlevel import hardware
from lowlevel.hardware import Limits
from lowlevel.problems.base import Problem

#: Clocks and counters are rounded: a rate is implausible only when it is over the limit by more than this.
_SLACK = 1.01


def percent_of_peak(problem: Problem, limits: Limits, microseconds: float) -> float | None:
    """Of the arithmetic peak of the type's unit, or of the memory bandwidth for what only moves data."""
    seconds = microseconds * 1e-6
    if problem.flops:
        peak = hardware.peak(limits, problem.type.unit)
        return None if peak is None else 100 * problem.flops / seconds / peak
    return 100 * problem.bytes / seconds / hardware.bandwidth(limits)


def implausible(problem: Problem, limits: Limits, microseconds: float) -> str:
    """Why this time cannot be, or nothing. Memory rates count only when the data exceeds the L2 cache."""
    if microseconds <= 0:
        return "the time is below the timer's resolution"
    seconds = microseconds * 1e-6
    peak = hardware.peak(limits, problem.type.unit) if problem.flops else None
    if peak and problem.flops / seconds > peak * _SLACK:
        return f"{problem.flops / seconds / 1e12:.1f} TFLOP/s is over the peak of {peak / 1e12:.1f}"
    most = hardware.bandwidth(limits)
    if problem.bytes > limits.l2_bytes and problem.bytes / seconds > most * _SLACK:
        return f"{problem.bytes / seconds / 1e9:.0f} GB/s is over the memory's {most / 1e9:.0f}"
    return ""


def tflops(problem: Problem, microseconds: float) -> float | None:
    return problem.flops / microseconds / 1e6 if problem.flops else None


def gb_per_s(problem: Problem, microseconds: float) -> float:
    return problem.bytes / microseconds / 1e3
