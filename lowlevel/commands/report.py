"""`lowlevel report`: the README's tables, and plots of a results file."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from lowlevel import plots, report
from lowlevel.commands import common
from lowlevel.errors import UsageError
from lowlevel.results import Results

PLOTS = ("roofline", "ladder")

_ABOUT = """\
Without a file, fills the tables of the README from the committed results. With files, draws each one's roofline and
ladder, as PNG and SVG.

  lowlevel report                                       refresh the README's tables
  lowlevel report --check                               exit code 1 if they are not what the results say
  lowlevel report bench/results/h200/main.json          main.roofline.png, main.ladder.svg ... beside it
  lowlevel report main.json --shape all --out plots     the ladder at every shape, elsewhere
"""


def add(commands) -> None:
    parser = commands.add_parser(
        "report",
        help="fill the README's tables; draw a results file's roofline and ladder",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=_ABOUT,
    )
    parser.add_argument("files", nargs="*", type=Path, metavar="RESULTS.json", help="results files to draw")
    parser.add_argument("--check", action="store_true", help="change nothing; exit code 1 if the README has drifted")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="where plots go (default: beside the results file)")
    parser.add_argument("--shape", help="the ladder's shape: 4096, 2048x2304x768, or all (default: 4096 or the usual)")
    parser.add_argument("--plot", type=common.comma_list, default=PLOTS, help="roofline,ladder (both)")
    parser.add_argument("--format", type=common.comma_list, default=plots.FORMATS, help="png,svg (both)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    if unknown := set(arguments.plot) - set(PLOTS):
        raise UsageError(f"no plot '{sorted(unknown)[0]}'; there are: {', '.join(PLOTS)}")
    if unknown := set(arguments.format) - set(plots.FORMATS):
        raise UsageError(f"no format '{sorted(unknown)[0]}'; there are: {', '.join(plots.FORMATS)}")
    if not arguments.files:
        return tables(arguments.check)
    if arguments.check:
        raise UsageError("--check looks at the README's tables, and takes no results file")
    results = [(path, Results.load(path)) for path in arguments.files]
    plots.figure_class()
    drawn = [draw(path, found, arguments) for path, found in results]
    return int(not all(drawn))


def tables(check: bool) -> int:
    """Refreshes the README's tables, or only says whether that would change them."""
    drifted = report.readme_tables(check)
    if check and drifted:
        print("README.md: its tables are not what the results say; run `lowlevel report`", file=sys.stderr)
        return 1
    print("README.md: " + ("tables filled anew" if drifted else "its tables are what the results say"))
    return 0


def draw(path: Path, results: Results, arguments: argparse.Namespace) -> bool:
    """Draws what was asked for of one file; a plot that has nothing to show says why. False when none was drawn, or
    not the ladder of a shape that was asked for."""
    folder = arguments.out or path.parent
    drawn, missed = False, False
    for name in arguments.plot:
        try:
            figure = plots.roofline(results) if name == "roofline" else plots.ladder(results, arguments.shape)
        except UsageError as error:
            print(f"{path}: {error}", file=sys.stderr)
            missed |= name == "ladder" and arguments.shape is not None
            continue
        for written in plots.save(figure, folder / f"{path.stem}.{name}", arguments.format):
            print(written)
        drawn = True
    return drawn and not missed
