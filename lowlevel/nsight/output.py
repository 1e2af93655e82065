"""Reading what `ncu --csv` prints. Pure functions of its text."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from lowlevel.errors import LowlevelError
from lowlevel.nsight.questions import STALLS, Question, stalls_of

_UNKNOWN = re.compile(r"[Ff]ailed to find metric (?:regex:)?(\S+)")
_PERMISSION = "ERR_NVGPUCTRPERM"
#: The source page's columns of shared-memory passes.
_PASSES = {"l1 wavefronts shared", "l1 wavefronts shared ideal"}
#: Columns that say which launch it is; every other column of the raw page is a metric.
_IDENTITY = frozenset(
    {
        "ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Kernel Time", "Context", "Stream",
        "Block Size", "Grid Size", "Device", "CC", "Section Name", "Metric Name", "Metric Unit", "Metric Value",
    }
)  # fmt: skip
#: What a count of bytes, seconds or hertz is multiplied by to be in the unit without a prefix, or in ns.
_SCALES = {
    "byte": 1, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9, "ns": 1, "nsecond": 1, "us": 1e3, "usecond": 1e3,
    "ms": 1e6, "msecond": 1e6, "s": 1e9, "second": 1e9,
}  # fmt: skip


@dataclass(frozen=True)
class Launch:
    """One profiled launch: metrics by name, bytes and nanoseconds in those units."""

    kernel: str
    grid: str
    block: str
    metrics: Mapping[str, float]


def number(text: str) -> float | None:
    """`1,234.5` -> 1234.5; None for `n/a`, nothing, or `(!) n/a`."""
    try:
        return float(text.replace(",", "").strip())
    except ValueError:
        return None


def launches(text: str) -> list[Launch]:
    """The launches of a raw or a details page, whatever ncu and the program printed before.

    Raises LowlevelError when there is no table: ncu ended without having profiled anything.
    """
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith(('"ID"', "ID,"))), None)
    if start is None:
        raise LowlevelError("ncu printed no table; " + (last_words(text) or "it said nothing"))
    header, *rows = csv.reader(lines[start:])
    # what else is printed, by ncu or by the program, is no line of the table
    records = [dict(zip(header, row, strict=True)) for row in rows if len(row) == len(header)]
    return _details(records) if "Metric Name" in header else _raw(records)


def _raw(records: Sequence[Mapping[str, str]]) -> list[Launch]:
    """A column a metric. The line under the header has the units and no ID."""
    units = records[0] if records and not records[0].get("ID") else {}
    found = []
    for record in records[1 if units else 0 :]:
        values = ((n, number(v or ""), units.get(n, "")) for n, v in record.items() if n not in _IDENTITY)
        found.append(_launch(record, {n: v * _SCALES.get(u, 1) for n, v, u in values if v is not None}))
    return found


def _details(records: Sequence[Mapping[str, str]]) -> list[Launch]:
    """A line a metric. Lines of ncu's own advice have no metric."""
    found: dict[str, tuple[Mapping[str, str], dict[str, float]]] = {}
    for record in records:
        _, metrics = found.setdefault(record["ID"], (record, {}))
        value = number(record.get("Metric Value") or "")
        if record.get("Metric Name") and value is not None:
            metrics[record["Metric Name"]] = value * _SCALES.get(record.get("Metric Unit") or "", 1)
    return [_launch(record, metrics) for record, metrics in found.values()]


def _launch(record: Mapping[str, str], metrics: Mapping[str, float]) -> Launch:
    return Launch(record.get("Kernel Name", ""), record.get("Grid Size", ""), record.get("Block Size", ""), metrics)


def mean(found: Sequence[Launch]) -> dict[str, float]:
    """Each metric's mean over the launches that have it."""
    names = dict.fromkeys(name for launch in found for name in launch.metrics)
    values = {name: [f.metrics[name] for f in found if name in f.metrics] for name in names}
    return {name: sum(v) / len(v) for name, v in values.items()}


def summary(question: Question, metrics: Mapping[str, float], most: int = 5) -> list[dict]:
    """The answer, a line a figure: {figure, value, unit, meaning}. Of the stalls the `most` frequent, as parts of all
    the warps that were resident. A counter that was not measured is `not measured`."""
    rows = []
    for counter in question.counters:
        found = [metrics.get(name) for name in counter.metrics]
        value = None
        if None not in found:
            value = counter.value(*found) if counter.value else found[0]
        shown = None if value is None else value * counter.scale
        # A ratio without a denominator: there were no such accesses.
        absent = "none" if None not in found else "not measured"
        rows.append(
            {
                "figure": counter.title,
                "value": absent if shown is None else shown,
                "unit": counter.unit if shown is not None else "",
                "meaning": counter.meaning,
            }
        )
    if question.stalls:
        rows += _stall_rows(metrics, most)
    return rows


def _stall_rows(metrics: Mapping[str, float], most: int) -> Iterator[dict]:
    found = stalls_of(metrics)
    total = sum(warps for _, warps in found)
    for reason, warps in found[:most]:
        if warps > 0:
            share = 100 * warps / total
            yield {"figure": f"stalled: {reason}", "value": share, "unit": "% of stalls", "meaning": STALLS[reason]}


@dataclass(frozen=True)
class Line:
    """One SASS instruction that touches shared memory. Wavefronts are passes, `ideal` without conflicts."""

    address: str
    sass: str
    executed: float
    wavefronts: float
    ideal: float

    @property
    def excess(self) -> float:
        return self.wavefronts - self.ideal


def conflicts(text: str) -> list[Line]:
    """The instructions of a source page that needed more passes of shared memory than ideal, the worst first.

    Raises LowlevelError where the page lacks the columns: the report has no section SourceCounters.
    """
    found: list[Line] = []
    names: dict[str, int] = {}
    width, complete = 0, False
    for row in csv.reader(line for line in text.splitlines() if line.strip() and not line.startswith("==")):
        if "Source" in row and "Address" in row:
            # a kernel's header; of columns with the same name the first counts
            names, width = {name.strip().lower(): i for i, name in reversed(list(enumerate(row)))}, len(row)
            complete = complete or set(names) >= _PASSES
        elif width and len(row) == width:
            line = _line(row, names)
            if line and line.excess > 0:
                found.append(line)
    if not complete:
        raise LowlevelError(
            "the report has no shared-memory counts of single instructions: record it with --section SourceCounters"
        )
    return sorted(found, key=lambda line: -line.excess)


def _line(row: Sequence[str], names: Mapping[str, int]) -> Line | None:
    def at(name: str) -> str:
        return row[names[name]] if name in names else ""

    wavefronts, ideal = number(at("l1 wavefronts shared")), number(at("l1 wavefronts shared ideal"))
    if wavefronts is None or ideal is None:
        return None
    executed = number(at("instructions executed")) or 0.0
    return Line(at("address"), " ".join(at("source").split()), executed, wavefronts, ideal)


def unknown_metrics(text: str) -> list[str]:
    """The metrics that ncu says this GPU does not have; of those that it names by an expression for every rollup, the
    part before the rollup."""
    cleaned = (name.strip("'\".,;^$").replace("\\", "").partition(".(")[0] for name in _UNKNOWN.findall(text))
    return list(dict.fromkeys(cleaned))


def lacks_permission(text: str) -> bool:
    return _PERMISSION in text


def last_words(text: str) -> str:
    """The last error that ncu printed, else its last line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("==ERROR==")]
    return (errors or lines or [""])[-1].removeprefix("==ERROR==").strip()[:200]
