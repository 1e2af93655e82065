"""What the committed results say of the same rows: a column beside those measured on another GPU."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from lowlevel.errors import UsageError
from lowlevel.report import Beside
from lowlevel.results import Results, Row

#: The folder of bench/results whose figures are shown elsewhere.
FOLDER = "h200"


def column(gpu: str, root: Path) -> Beside | None:
    """The committed figures, headed with the GPU that they were measured on. None on that GPU itself, and where there
    are none that can be read: a column for comparison must not stop a measurement."""
    found = committed(root / FOLDER)
    names = {str(r.environment.get("gpu")) for r in found}
    if len(names) != 1 or gpu in names:
        return None
    figures = by_identity([row for results in found for row in results.rows])
    return Beside(f"on {names.pop()}", lambda row: figures.get(row.identity))


def committed(folder: Path) -> list[Results]:
    """The folder's files, `main.json` first, without earlier and partial runs."""
    files = [p for p in folder.glob("*.json") if not re.search(r"\.(\d|partial)\.json$", p.name)]
    found = []
    for path in sorted(files, key=lambda p: (p.stem != "main", p.name)):
        try:
            found.append(Results.load(path))
        except UsageError:
            continue
    return found


def by_identity(rows: Sequence[Row]) -> Mapping[tuple, str]:
    """What was measured, whatever architecture it was compiled for -> `51.4 TFLOP/s`. The first of several rows
    counts, unless they moved different amounts of data: those are not the same row, and have no figure."""
    found: dict[tuple, Row] = {}
    doubtful: set[tuple] = set()
    for row in rows:
        if row.status != "ok" or row.median_us is None:
            continue
        first = found.setdefault(row.identity, row)
        if not _same_data(first, row):
            doubtful.add(row.identity)
    return {key: _rate(row) for key, row in found.items() if key not in doubtful and _rate(row)}


def _same_data(a: Row, b: Row) -> bool:
    """Bytes are rate times time."""
    moved = [(row.gb_per_s or 0) * row.median_us for row in (a, b)]
    return abs(moved[0] - moved[1]) <= 1e-3 * max(moved)


def _rate(row: Row) -> str:
    if row.tflops is not None:
        return f"{row.tflops:.1f} TFLOP/s"
    return "" if row.gb_per_s is None else f"{row.gb_per_s:.0f} GB/s"
