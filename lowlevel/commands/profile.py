"""`lowlevel profile`: why a kernel is as fast as it is, by Nsight Compute's counters."""

from __future__ import annotations

import argparse
import json
import shlex
import tempfile
from pathlib import Path

from tabulate import tabulate

from lowlevel import tuned
from lowlevel.catalog.entry import Variant
from lowlevel.commands import common
from lowlevel.commands.export import target
from lowlevel.commands.show import one
from lowlevel.device.cuda.driver import probe
from lowlevel.errors import MissingError, UsageError
from lowlevel.nsight import command, output
from lowlevel.nsight.questions import QUESTIONS
from lowlevel.problems.make import make_problem
from lowlevel.problems.shapes import parse_shape

_ABOUT = """\
Runs one variant at one shape under Nsight Compute (ncu), and says what its counters mean.

  lowlevel profile gemm/02_tiled 4096
  lowlevel profile ptx:gemm/02_tiled 4096 --what shared
  lowlevel profile gemm/02_tiled 4096 --source            which SASS lines have bank conflicts
  lowlevel profile my.cu --as gemm/02 4096                a kernel of your own
  lowlevel profile gemm/02_tiled 4096 --print             the ncu line, to run or change it yourself
  lowlevel profile gemm/02_tiled 4096 --export tiled      a report for Nsight Compute's window
  lowlevel profile --import tiled.ncu-rep                 its SASS lines that have bank conflicts

Clocks are left alone (--clock-control none); the first launches are skipped, so that caches and clock are warm.
"""


def add(commands) -> None:
    parser = commands.add_parser(
        "profile",
        help="look at one kernel through Nsight Compute's counters",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=_ABOUT,
        epilog=questions_text(),
    )
    what = "a kernel, in the configuration it takes for the shape, or a row's whole name"
    parser.add_argument("variant", nargs="?", help=what)
    parser.add_argument("shape", nargs="?", default="", help="4096, 2048x2304x768; nothing for a probe")
    parser.add_argument("--what", choices=QUESTIONS, default="overview", help="the question (see below)")
    parser.add_argument("--source", action="store_true", help="SASS lines with shared-memory bank conflicts instead")
    parser.add_argument("--import", dest="report", type=Path, metavar="REPORT", help="the same, of a report of ncu's")
    parser.add_argument("--export", type=Path, metavar="REPORT", help="write a full report (--set full), show nothing")
    parser.add_argument("--print", action="store_true", help="print the ncu line, run nothing")
    parser.add_argument("--entry", help="of a call of several launches, the kernel to profile (default: the last)")
    parser.add_argument("--warm-up", type=_count, default=3, metavar="N", help="launches passed before (3)")
    parser.add_argument("--launches", type=_count, default=1, metavar="N", help="launches profiled and averaged (1)")
    parser.add_argument("--arch", help="compile for this architecture")
    parser.add_argument("--device", type=int, default=0, help="GPU number")
    common.add_own(parser)
    common.add_output(parser)
    parser.set_defaults(run=run)


def questions_text() -> str:
    """Each question with the metrics that answer it."""
    lines = ["questions (--what), and the metrics that answer them:"]
    for name, question in QUESTIONS.items():
        lines += ["", f"  {name}: {question.text}"]
        for counter in question.counters:
            lines += [f"    {counter.title}: {' / '.join(counter.metrics)}"]
        if question.stalls:
            lines += ["    stalled: smsp__average_warps_issue_stalled_<reason>_per_issue_active.ratio"]
    return "\n".join(lines)


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of launches, 0 or more")
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    if arguments.report is not None:
        return imported(arguments)
    if arguments.variant is None:
        raise UsageError("name a kernel, as in `lowlevel profile gemm/02_tiled 4096`, or give a report to --import")
    variant = suited(one(*common.with_own([arguments.variant], arguments)), arguments.shape)
    lines = command_lines(variant, arguments)
    if arguments.print:
        return print_lines(lines, arguments)
    command.find()
    if reason := probe():
        raise MissingError(f"profile needs a GPU: {reason}")
    if arguments.export:
        command.run(lines[0])
        print(f"{arguments.export}: open it in Nsight Compute, or `lowlevel profile --import` it")
    elif arguments.source:
        show_lines(recorded(variant, arguments), arguments)
    else:
        show_summary(variant, arguments)
    return 0


def print_lines(lines: list[list[str]], arguments: argparse.Namespace) -> int:
    """The lines of ncu's, for a shell or, in JSON, word by word."""
    if arguments.markdown:
        raise UsageError("--markdown is for tables, and --print shows lines; --json prints them word by word")
    print(json.dumps({"lines": lines}, indent=1) if arguments.json else "\n".join(map(shlex.join, lines)))
    return 0


def suited(variant: Variant, shape: str) -> Variant:
    """The configuration that the kernel takes for the shape on the GPU here; without one, on an H200."""
    if not shape:
        return variant
    return tuned.suited(variant, make_problem(variant, parse_shape(shape)[0]), target(None, None)[1])


def command_lines(variant: Variant, arguments: argparse.Namespace) -> list[list[str]]:
    """What will be run. Raises UsageError for a shape that the variant does not take."""
    shapes = parse_shape(arguments.shape) if arguments.shape else [()]
    if not shapes[0] and variant.kernel.operation != "probe":
        raise UsageError(f"profile needs a shape: lowlevel profile {variant.kernel.label} 4096")
    if len(shapes) > 1:
        raise UsageError("profile takes one shape")
    problem = make_problem(variant, shapes[0])
    if refusal := variant.refusal(problem):
        raise UsageError(f"{variant.name} does not take {problem.label}: {refusal}")
    if arguments.launches < 1:
        raise UsageError("--launches 0 profiles nothing; give 1 or more")
    entry = command.entry_of(variant, arguments.entry)
    ncu, skip = (command.doctor.ncu() or "ncu"), arguments.warm_up
    program = program_of(variant, arguments)
    if arguments.export:
        full = [ncu, *command.filters(entry, skip, arguments.launches), "--set", "full", "--export"]
        return [[*full, str(arguments.export), "--force-overwrite", *program]]
    if arguments.source:
        report = Path("report.ncu-rep")
        return [command.record(ncu, entry, report, skip, program), command.source_page(ncu, report)]
    metrics = QUESTIONS[arguments.what].metrics
    return [command.counters(ncu, entry, metrics, skip, arguments.launches, program)]


def program_of(variant: Variant, arguments: argparse.Namespace) -> list[str]:
    launches = arguments.warm_up + arguments.launches
    return command.target(variant, arguments.shape, launches, arguments.arch, arguments.device)


def show_summary(variant: Variant, arguments: argparse.Namespace) -> None:
    question, entry = QUESTIONS[arguments.what], command.entry_of(variant, arguments.entry)
    text = command.measure(
        command.find(),
        entry,
        question.metrics,
        arguments.warm_up,
        arguments.launches,
        program_of(variant, arguments),
    )
    launches = output.launches(text)
    rows = output.summary(question, output.mean(launches))
    if arguments.json:
        print(json.dumps(rows, indent=1))
        return
    first = launches[0]
    counted = "" if len(launches) == 1 else f", mean of {len(launches)} launches"
    print(f"{variant.name} {arguments.shape}: {first.kernel}, grid {first.grid}, block {first.block}{counted}")
    print(f"{question.text[0].upper()}{question.text[1:]}\n")
    shown = [{**row, "value": value_text(row["value"])} for row in rows]
    style = "github" if arguments.markdown else "simple"
    align = ("left", "right", "left", "left")
    print(tabulate(shown, "keys", tablefmt=style, colalign=align, disable_numparse=True))


def value_text(value: float | str) -> str:
    if isinstance(value, str):
        return value
    return f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.2f}"


def recorded(variant: Variant, arguments: argparse.Namespace) -> list[output.Line]:
    """Records a report beside nothing that lasts, and reads it back."""
    ncu, entry = command.find(), command.entry_of(variant, arguments.entry)
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.ncu-rep"
        command.run(command.record(ncu, entry, report, arguments.warm_up, program_of(variant, arguments)))
        return output.conflicts(command.run(command.source_page(ncu, report)))


def imported(arguments: argparse.Namespace) -> int:
    line = command.source_page(command.doctor.ncu() or "ncu", arguments.report)
    if arguments.print:
        return print_lines([line], arguments)
    if not arguments.report.is_file():
        raise UsageError(f"no report {arguments.report}")
    command.find()
    show_lines(output.conflicts(command.run(line)), arguments)
    return 0


def show_lines(lines: list[output.Line], arguments: argparse.Namespace) -> None:
    """The instructions with bank conflicts, the worst first."""
    rows = [
        {
            "address": line.address,
            "SASS": line.sass,
            "executed": f"{line.executed:.0f}",
            "passes": f"{line.wavefronts:.0f}",
            "without conflicts": f"{line.ideal:.0f}",
            "times": f"{line.wavefronts / line.ideal:.2f}" if line.ideal else "",
        }
        for line in lines
    ]
    if not rows and not arguments.json:
        print("No instruction has a shared-memory bank conflict.")
        return
    common.print_rows(rows, arguments)
