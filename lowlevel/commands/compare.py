"""`lowlevel compare`: two results files, row by row."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path

from tabulate import tabulate

from lowlevel import regression, report, terminal
from lowlevel.commands import common
from lowlevel.errors import UsageError
from lowlevel.results import Results

_NUMBERS = ("A", "B", "change")

_ABOUT = """\
Joins two results files by operation, variant, language, config, arch, dtype, layout, epilogue and shape, and says which
rows became better, worse, broken or mended from A to B.

  lowlevel compare before.json after.json
  lowlevel compare bench/results/h200/main.1.json bench/results/h200/main.json --all
  lowlevel compare before.json after.json --markdown > change.md

A kernel's figure is its ratio to the best library in the same rounds, with its 95 % interval. A library's, or where
there is no ratio, is the median time with half the interquartile range to either side. Better or worse means: the two
intervals do not overlap, and both the figure and the time changed by at least --least per cent. Earlier runs kept
beside a file (NAME.1.json, NAME.2.json), of the same commit and GPU, widen its intervals to hold theirs.

Exit code 1 if a row is worse or broken in B.
"""


def add(commands) -> None:
    parser = commands.add_parser(
        "compare",
        help="what became better or worse between two results files",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=_ABOUT,
    )
    parser.add_argument("a", type=Path, metavar="A.json", help="the results before")
    parser.add_argument("b", type=Path, metavar="B.json", help="the results after")
    parser.add_argument(
        "--least",
        type=_percent,
        default=regression.LEAST,
        metavar="PERCENT",
        help="smaller changes are none (2: what runs of one commit differ by)",
    )
    parser.add_argument("--all", action="store_true", help="show the rows that are the same too")
    common.add_output(parser)
    parser.set_defaults(run=run)


def _percent(text: str) -> float:
    value = common.real(text)
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not 0 per cent or more")
    return value


def run(arguments: argparse.Namespace) -> int:
    a = regression.with_earlier_runs(arguments.a, arguments.b)
    b = regression.with_earlier_runs(arguments.b, arguments.a)
    changes = regression.compare(a, b, arguments.least)
    if not any(c.a and c.b for c in changes):
        raise UsageError(f"{arguments.a} and {arguments.b} have no row in common")
    differ = regression.differences(a[-1], b[-1])
    if arguments.json:
        print(as_json(changes, differ, arguments.all))
    else:
        print(as_text(arguments, (a[-1], b[-1]), changes, differ))
    return int(any(c.verdict in ("worse", "broken") for c in changes))


def as_json(changes: list[regression.Change], differ: list[str], everything: bool) -> str:
    rows = [regression.plain(c) for c in changes if everything or c.verdict != "same"]
    counts = Counter(c.verdict for c in changes)
    return json.dumps({"differences": differ, "counts": counts, "rows": rows}, indent=1)


def as_text(
    arguments: argparse.Namespace, results: tuple[Results, Results], changes: list[regression.Change], differ: list[str]
) -> str:
    """Conditions that differ first, then the table, then the count of each verdict."""
    parts = ["\n".join(f"{name}: {heading(found)}" for name, found in zip("AB", results, strict=True))]
    if arguments.markdown:
        parts = [parts[0].replace("\n", "  \n")]
    if differ:
        title = "NOT MEASURED UNDER THE SAME CONDITIONS:"
        parts.append("\n".join([f"**{title}**\n" if arguments.markdown else title, *(f"- {line}" for line in differ)]))
    rows = [regression.shown(c) for c in changes if arguments.all or c.verdict != "same"]
    rows = [{key: value for key, value in row.items() if any(r[key] for r in rows)} for row in rows]
    if rows:
        align = ["right" if key in _NUMBERS else "left" for key in rows[0]]
        if arguments.markdown:
            parts.append(tabulate(rows, "keys", tablefmt="github", colalign=align, disable_numparse=True))
        else:
            columns = {key: [row[key] for row in rows] for key in rows[0]}
            parts.append(terminal.fitted(columns, terminal.width(sys.stdout), _NUMBERS))
    counts = Counter(c.verdict for c in changes)
    parts.append(", ".join(f"{counts[v]} {v}" for v in regression.VERDICTS if counts[v]))
    return "\n\n".join(parts)


def heading(results: Results) -> str:
    """The environment, and the commit that was measured."""
    commit = str(results.environment.get("commit") or "")[:10]
    return report.environment_line(results) + (f", commit {commit}" if commit else "")
