"""`lowlevel exercise`: learn by doing."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from lowlevel import catalog, exercises, gpu_worker
from lowlevel.catalog import own
from lowlevel.catalog.entry import Variant
from lowlevel.commands import common
from lowlevel.commands.verify import problems_of, verify_one
from lowlevel.device.cuda.driver import probe
from lowlevel.errors import CompileError, MissingError, UsageError
from lowlevel.exercises import EXERCISES, Exercise
from lowlevel.problems.base import KINDS
from lowlevel.toolchain.binary import Binary
from lowlevel.toolchain.build import build
from lowlevel.worker import Worker

#: Seconds for one small shape: a loop that never ends is a usual mistake, and is reported after this.
_DEADLINE_S = 20.0


def add(commands) -> None:
    parser = commands.add_parser(
        "exercise",
        help="exercises: kernels to finish, and what is still wrong with yours",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Starter files that fail until they are solved; each says in its header what is asked.\n\n"
        "  lowlevel exercise               what there is, and how far you are\n"
        "  lowlevel exercise 1 --start     copy 01_tile.cu here\n"
        "  lowlevel exercise 1             check the 01_tile.cu here\n"
        "  lowlevel exercise 1 mine.cu     check another file\n\n"
        "Without a GPU the file is compiled and its structure checked; its result is not. Exit code 1 if anything that "
        "could\nbe checked is not as it should be.",
    )
    parser.add_argument("number", type=int, nargs="?", help="which exercise")
    parser.add_argument("file", nargs="?", help="your file (default: the starter's name, in this folder)")
    parser.add_argument("--start", action="store_true", help="copy the starter file here; nothing is overwritten")
    parser.add_argument("--arch", help="compile for this architecture (default: the GPU's, or sm_90a)")
    parser.add_argument("--device", type=int, default=0, help="GPU number")
    common.add_output(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    if arguments.number is None:
        if arguments.start:
            raise UsageError("--start needs a number: `lowlevel exercise 1 --start`")
        return list_all(arguments)
    exercise = exercises.find(arguments.number)
    file = arguments.file or exercise.file
    if arguments.start:
        exercises.start(exercise, Path(file))
        print(f"{file} is here; its header says what to do. When you have done it: lowlevel {_again(exercise, file)}")
        return 0
    return check(exercise, file, arguments)


def list_all(arguments: argparse.Namespace) -> int:
    """Every exercise and how far the file of its name in this folder is."""
    with Grader(arguments) as grader:
        rows = [
            {"exercise": e.number, "title": e.title, "file": e.file, "as": e.stands_for, "state": state(e, grader)}
            for e in EXERCISES
        ]
    common.print_rows(rows, arguments)
    return 0


def state(exercise: Exercise, grader: Grader) -> str:
    if not Path(exercise.file).is_file():
        return f"not started: lowlevel exercise {exercise.number} --start"
    return summary(grader.grade(exercise, exercise.file))


def check(exercise: Exercise, file: str, arguments: argparse.Namespace) -> int:
    if not Path(file).is_file():
        start = f"; `lowlevel exercise {exercise.number} --start` copies the starter here" if not arguments.file else ""
        raise UsageError(f"no file '{file}'{start}")
    with Grader(arguments) as grader:
        rows = grader.grade(exercise, file)
    common.print_rows(rows, arguments)
    if not arguments.json:
        print(f"\nExercise {exercise.number}, {exercise.title}: {summary(rows)}.")
        if passed(rows):
            print(f"See it beside cuBLAS: {exercise.bench_command(file)}")
    return int(not passed(rows))


def passed(rows: list[dict]) -> bool:
    return all(row["verdict"] in ("ok", "not checked") for row in rows)


def summary(rows: list[dict]) -> str:
    """`solved`, what is not checked here, or the first thing that is still wrong."""
    if wrong := [row for row in rows if row["verdict"] not in ("ok", "not checked")]:
        return f"not solved yet: {wrong[0]['step']}: {wrong[0]['said'] or wrong[0]['verdict']}"
    if open_ := [row["step"] for row in rows if row["verdict"] == "not checked"]:
        return f"as far as can be seen here it is right; {' and '.join(open_)} could not be checked"
    return "solved"


class Grader:
    """Checks files: compiles, looks for what the exercise is about, and on a GPU verifies, in a child process."""

    def __init__(self, arguments: argparse.Namespace):
        self.no_gpu = probe()
        self._gpu = None if self.no_gpu else Worker("gpu", gpu_worker.start, (arguments.device,))
        self._arch = arguments.arch

    def __enter__(self) -> Grader:
        return self

    def __exit__(self, *_: object) -> None:
        if self._gpu:
            self._gpu.close()

    @property
    def arch(self) -> str:
        if self._arch is None:
            self._arch = self._gpu.call(gpu_worker.limits, deadline=120.0).arch if self._gpu else "sm_90a"
        return self._arch

    def grade(self, exercise: Exercise, file: str) -> list[dict]:
        """A row for each step: `verdict` is ok, wrong, failed or `not checked`; `said` is one line."""
        variants = own_variants(exercise, file)
        try:
            binaries = [build(catalog.request(variant, self.arch)) for variant in variants]
        except CompileError as error:
            return [_row("compiles", "failed", str(error))]
        taken = binaries[0].entries[variants[0].kernel.entry].resources
        said = f"{binaries[0].compiler}, {binaries[0].arch}, {taken.registers} registers, {taken.shared} bytes shared"
        return [
            _row("compiles", "ok", said),
            *structure_rows(exercise, binaries[0]),
            self._result(exercise, variants, binaries),
        ]

    def _result(self, exercise: Exercise, variants: list[Variant], binaries: list[Binary]) -> dict:
        """Whether it computes what it should; the first shape where it does not ends the check."""
        if self.no_gpu:
            return _row("the result", "not checked", f"no GPU: {self.no_gpu}")
        shapes = []
        for variant, binary in zip(variants, binaries, strict=True):
            for problem in problems_of(variant, exercise.shapes):
                shapes.append(problem.label)
                for kind in KINDS:
                    row = verify_one(self._gpu, variant, problem, binary, kind, 2, _DEADLINE_S)
                    if row["verdict"] != "ok":
                        where = f"{problem.label} {variant.type.name}, {kind} inputs"
                        return _row("the result", row["verdict"], f"{where}: {row['reason']}")
        return _row("the result", "ok", f"every element at {', '.join(dict.fromkeys(shapes))}")


def own_variants(exercise: Exercise, file: str) -> list[Variant]:
    """The kernel that the file makes in the place of the exercise's, in each of its types."""
    entry = next(k for k in catalog.kernels() if k.label == exercise.stands_for)
    if Path(file).suffix != Path(exercise.file).suffix:
        raise UsageError(f"exercise {exercise.number} is about a {Path(exercise.file).suffix} file, not '{file}'")
    return catalog.own_kernel(own.derive(entry, file).label).variants()


def structure_rows(exercise: Exercise, binary: Binary) -> list[dict]:
    try:
        found = exercises.structure(exercise, binary)
    except MissingError as error:
        return [_row("the structure", "not checked", str(error))]
    return [_row(text, "ok" if holds else "missing", "") for text, holds in found]


def _row(step: str, verdict: str, said: str) -> dict:
    return {"step": step, "verdict": verdict, "said": said}


def _again(exercise: Exercise, file: str) -> str:
    return f"exercise {exercise.number}" + (f" {shlex.quote(file)}" if file != exercise.file else "")
