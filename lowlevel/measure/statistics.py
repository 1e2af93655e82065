"""Medians, spreads, and the interval of a ratio of paired rounds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

_RESAMPLES = 2000


def median(values: Sequence[float]) -> float:
    return float(np.median(values))


def iqr(values: Sequence[float]) -> float:
    """The distance from the first to the third quartile."""
    low, high = np.percentile(values, (25, 75))
    return float(high - low)


def relative_error(values: Sequence[float]) -> float:
    """Half the width of the median's 95 % interval, relative to the median: 1.57 IQR / sqrt(n), as notched box plots
    use (McGill, Tukey, Larsen 1978)."""
    return 1.57 * iqr(values) / np.sqrt(len(values)) / median(values)


def paired_ratio(base: Sequence[float], own: Sequence[float], seed: int = 0) -> tuple[float, float, float]:
    """(median, low, high) of base / own, round by round: above 1 the own time is shorter. low and high bound the
    median with 95 % confidence, by bootstrap over rounds."""
    ratios = np.asarray(base, float) / np.asarray(own, float)
    draws = np.random.default_rng(seed).integers(0, len(ratios), (_RESAMPLES, len(ratios)))
    low, high = np.percentile(np.median(ratios[draws], axis=1), (2.5, 97.5))
    return float(np.median(ratios)), float(low), float(high)


def processes_ratio(
    bases: Sequence[Sequence[float]], owns: Sequence[Sequence[float]], seed: int = 0
) -> tuple[float, float, float]:
    """As `paired_ratio`, of rounds in several processes: the median of the processes' medians. low and high come from a
    bootstrap over processes and over the rounds of each, since rounds of one process agree better than processes do."""
    if len(bases) == 1:
        return paired_ratio(bases[0], owns[0], seed)
    ratios = [np.asarray(base, float) / np.asarray(own, float) for base, own in zip(bases, owns, strict=True)]
    generator = np.random.default_rng(seed)
    drawn = generator.integers(0, len(ratios), (_RESAMPLES, len(ratios)))
    medians = np.empty(drawn.shape)
    for index, own in enumerate(ratios):
        places = drawn == index
        medians[places] = np.median(own[generator.integers(0, len(own), (np.sum(places), len(own)))], axis=1)
    low, high = np.percentile(np.median(medians, axis=1), (2.5, 97.5))
    return median([median(own) for own in ratios]), float(low), float(high)
