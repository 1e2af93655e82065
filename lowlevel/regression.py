"""Two results files, row by row: what became better, what worse, and whether they may be compared at all.

A row is faster or slower when its intervals in the two files do not overlap and the change is at least LEAST per cent.
The interval of a kernel is that of its ratio to the best library of the same rounds, which a change of clock leaves
alone; its time must have changed the same way by as much, since a library that gained makes no kernel worse. A
library, or a row without a ratio, has its time: the median and half the interquartile range to either side.
Where the file's earlier runs lie beside it, made by the same commit on the same GPU, the interval spans theirs too:
rounds of one run agree better than runs do.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from lowlevel import report
from lowlevel.results import CONDITIONS, Results, Row, runs

#: Per cent. Two runs on one idle GPU differ by this much without a cause.
LEAST = 2.0
#: ok first; a row that was ok and now is one of these is broken.
BROKEN = ("wrong", "failed", "hang", "implausible")
#: In the order of the table. `broken` and `worse` make the exit code 1.
VERDICTS = ("broken", "worse", "mended", "better", "status", "only in A", "only in B", "same")
#: Of the protocol, what must agree for times to be comparable.
PROTOCOL = ("timer", "regime", "data")
_SAME_RUN = ("commit", "gpu", "uuid", "driver", "cublas", "nvrtc")
#: Per cent by which the measured clocks' medians may differ before it is said.
_CLOCK = 1.0


@dataclass(frozen=True)
class Figure:
    """A row's speed, larger is faster, and the interval that it lies in: a ratio, or calls per microsecond."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Change:
    """One row in the two files; `a` or `b` is None where it is only in the other. percent > 0: B is faster."""

    verdict: str
    a: Row | None
    b: Row | None
    percent: float | None = None
    by: str = ""

    @property
    def row(self) -> Row:
        return self.b or self.a


def keyed(rows: Iterable[Row]) -> dict[tuple, Row]:
    """Rows by what was measured and for which architecture; of rows with the same key, each with its number."""
    found: dict[tuple, Row] = {}
    counts: dict[tuple, int] = {}
    for row in rows:
        key = (*row.identity, row.arch)
        counts[key] = counts.get(key, 0) + 1
        found[(*key, counts[key])] = row
    return found


def compare(a: Sequence[Results], b: Sequence[Results], least: float = LEAST) -> list[Change]:
    """Every row of either side, the worst news first. Each side is the runs of one file, the file itself last."""
    left, right = [keyed(r.rows) for r in a], [keyed(r.rows) for r in b]
    keys = list(dict.fromkeys([*left[-1], *right[-1]]))
    changes = [_change(key, left, right, least) for key in keys]
    return sorted(changes, key=lambda c: (VERDICTS.index(c.verdict), c.percent or 0.0))


def _change(key: tuple, left: Sequence[Mapping], right: Sequence[Mapping], least: float) -> Change:
    a, b = left[-1].get(key), right[-1].get(key)
    if a is None or b is None:
        if b is not None and b.status in BROKEN:
            return Change("broken", a, b)
        return Change("only in A" if b is None else "only in B", a, b)
    if a.status != b.status:
        verdict = "broken" if b.status in BROKEN else "mended" if a.status in BROKEN and b.status == "ok" else "status"
        return Change(verdict, a, b)
    by = "ratio" if _has_ratio(a) and _has_ratio(b) else "time"
    was, now = (_over_runs([r[key] for r in side if key in r], by) for side in (left, right))
    if was is None or now is None or a.status != "ok":
        return Change("same", a, b)
    percent = 100 * (now.value / was.value - 1)
    overlap = now.low <= was.high and was.low <= now.high
    if overlap or min(abs(percent), _sign(percent) * _faster(a, b)) < least:
        return Change("same", a, b, percent, by)
    return Change("better" if percent > 0 else "worse", a, b, percent, by)


def _faster(a: Row, b: Row) -> float:
    """Per cent by which B's rate is above A's."""
    return 100 * (a.median_us / b.median_us - 1)


def _sign(value: float) -> float:
    return math.copysign(1.0, value)


def _has_ratio(row: Row) -> bool:
    """A library is what others are compared with: its own ratio moves when another library does. So is a copy kernel
    that outran the driver's copy: its ratio to itself is 1, without a width."""
    ratio = (row.vs_best_library, row.ratio_low, row.ratio_high)
    return row.language != "library" and None not in ratio and row.ratio_low < row.ratio_high


def _over_runs(rows: Sequence[Row], by: str) -> Figure | None:
    """The last run's value, within an interval that holds every run's."""
    figures = [f for f in (figure(row, by) for row in rows if row.status == "ok") if f]
    if not figures or figure(rows[-1], by) is None:
        return None
    return Figure(figures[-1].value, min(f.low for f in figures), max(f.high for f in figures))


def figure(row: Row, by: str) -> Figure | None:
    """by: `ratio` for the ratio to the best library, `time` for the median; None where the row has none."""
    if by == "ratio":
        return Figure(row.vs_best_library, row.ratio_low, row.ratio_high) if _has_ratio(row) else None
    if not row.median_us:
        return None
    half = min((row.iqr_us or 0.0) / 2, row.median_us / 2)
    return Figure(1 / row.median_us, 1 / (row.median_us + half), 1 / (row.median_us - half))


def with_earlier_runs(path: Path, other: Path) -> list[Results]:
    """The runs kept beside a file that were made under the same conditions, the file itself last; without `other`,
    which it is compared with."""
    last = Results.load(path)
    earlier = [Results.load(p) for p in runs(path) if p.resolve() not in (path.resolve(), other.resolve())]
    same = [r for r in earlier if all(r.environment.get(k) == last.environment.get(k) for k in _SAME_RUN)]
    return [*same, last]


def differences(a: Results, b: Results) -> list[str]:
    """`driver: 580.1 in A, 590.2 in B`: why the two may not be comparable; empty when nothing is known to differ."""
    found = []
    for names, left, right in ((CONDITIONS, a.environment, b.environment), (PROTOCOL, a.protocol, b.protocol)):
        for name in names:
            if left.get(name) != right.get(name):
                found.append(f"{name}: {left.get(name)} in A, {right.get(name)} in B")
    clocks = [_clock(r.rows) for r in (a, b)]
    if None not in clocks and abs(clocks[1] / clocks[0] - 1) * 100 > _CLOCK:
        found.append(f"median SM clock while measuring: {clocks[0]:.0f} MHz in A, {clocks[1]:.0f} MHz in B")
    for name, results in (("A", a), ("B", b)):
        if others := results.environment.get("other_processes"):
            found.append(f"other processes on the GPU in {name}: {', '.join(others)}")
    return found


def _clock(rows: Sequence[Row]) -> float | None:
    clocks = [r.sm_clock_mhz for r in rows if r.sm_clock_mhz]
    return median(clocks) if clocks else None


def shown(change: Change) -> dict:
    """A line of the table. Rates stand for times: TFLOP/s of a product, GB/s of a move, microseconds otherwise."""
    row = change.row
    return {
        "verdict": change.verdict,
        "variant": report.row_name(row),
        "language": "" if row.language == "library" else row.language,
        "arch": row.arch,
        "problem": report.title(row),
        "A": _speed(change.a),
        "B": _speed(change.b),
        "change": "" if change.percent is None else f"{change.percent:+.1f} %",
        "by": change.by,
    }


def _speed(row: Row | None) -> str:
    if row is None:
        return ""
    if row.status != "ok":
        return row.status
    if row.tflops is not None:
        return f"{row.tflops:.1f} TFLOP/s"
    if row.gb_per_s is not None:
        return f"{row.gb_per_s:.0f} GB/s"
    return "ok" if row.median_us is None else f"{row.median_us:.1f} us"


def plain(change: Change) -> dict:
    """The same for a program: numbers as numbers."""
    row, pair = change.row, (change.a, change.b)
    names = ("op", "variant", "language", "config", "arch", "dtype", "layout", "epilogue", "m", "n", "k")
    return {
        "verdict": change.verdict,
        **{name: getattr(row, name) for name in names},
        "percent": change.percent,
        "by": change.by or None,
        "status": [r and r.status for r in pair],
        "median_us": [r and r.median_us for r in pair],
        "vs_best_library": [r and r.vs_best_library for r in pair],
        "reason": row.reason if change.verdict == "broken" else None,
    }
