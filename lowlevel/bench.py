"""`lowlevel bench`: build, verify, measure, tabulate, save.

One child process owns the GPU. Every variant and shape is verified there under a deadline; those that passed are
then timed together in it, under a deadline too. A hang, a fault or a crashing compiler costs one row: the child is
replaced and the rest goes on.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TextIO

from lowlevel import catalog, gpu_worker, paths, reference, report, results, roofline, suite, terminal
from lowlevel.catalog import library
from lowlevel.catalog.entry import Variant
from lowlevel.catalog.sweep import Sweep
from lowlevel.contender import launch_shape
from lowlevel.errors import DeviceError, LowlevelError, UsageError
from lowlevel.hardware import Limits
from lowlevel.measure import Measurement, Options, joined
from lowlevel.measure.statistics import processes_ratio
from lowlevel.problems.base import Problem
from lowlevel.progress import Progress, RowProgress, TimeLeft
from lowlevel.results import Results, Row
from lowlevel.static import refuses_numbers
from lowlevel.suite import Group, Suite
from lowlevel.toolchain.arch import parse_arch
from lowlevel.toolchain.binary import Binary
from lowlevel.toolchain.build import build_all
from lowlevel.verify import Verdict
from lowlevel.worker import Worker, WorkerDied, WorkerHung

VERIFY_DEADLINE_S = 120.0
#: The longest silence of a measuring child: preparing a contender of the largest shape, algorithms tried and all.
MEASURE_DEADLINE_S = 90.0
#: What a protocol says of several processes.
_SEVERAL = {
    "turns": "one process after the other, problem by problem; each verifies before and after its rounds",
    "orders": "of the rounds, others in each process",
    "reference": "made by the first process",
    "library_algorithms": "chosen in the first process",
    "interval": "bootstrap over processes and their rounds",
}


@dataclass(frozen=True)
class BenchOptions:
    """What the command line asks for. `suite` or `patterns` choose the rows; shapes, dtypes and layouts narrow either.

    budget: seconds of timing, of all processes. resume: the rows that the file has are kept, and not measured again.
    """

    patterns: tuple[str, ...] = ()
    shapes: str = ""
    suite: str | None = None
    dtypes: tuple[str, ...] = ()
    layouts: tuple[str, ...] = ()
    arch: str | None = None
    timer: str = "auto"
    cool: bool = False
    quick: bool = False
    budget: float | None = None
    json_path: Path | None = None
    markdown: bool = False
    device: int = 0
    runs: int = 1
    processes: int = 1
    resume: bool = False
    sweep: Sweep = field(default_factory=dict)


def run_bench(options: BenchOptions, out: TextIO | None = None) -> int:
    """Runs what `options` name, prints the tables, saves the rows. Returns 0, or 1 when a row is not ok or all are
    skipped.

    Raises UsageError or MissingError for what cannot be started. On Ctrl-C or SIGTERM the rows measured so far are
    printed and saved before KeyboardInterrupt passes on.
    """
    out = out or sys.stdout
    chosen = choose(options)
    with Bench(options, chosen) as bench:
        path = result_path(options, chosen, bench.limits)
        if path:
            results.check_writable(path)
        if options.resume:
            bench.resume(path)
        print(bench.first_screen(), file=out, flush=True)
        failed = False
        for number in range(options.runs):
            if options.runs > 1:
                print(f"\nRun {number + 1} of {options.runs}", file=out, flush=True)
            try:
                rows = bench.run(path if options.resume else None)
            except KeyboardInterrupt:
                partial = path if options.resume or not path else path.with_name(f"{path.stem}.partial.json")
                finish(bench.rows, bench, partial, options, out)
                raise
            if path and not options.resume:
                results.keep_previous(path)
            finish(rows, bench, path, options, out)
            states = {row.status for row in bench.found(rows).rows}
            failed = failed or bool(states - {"ok", "skipped"})
            if states == {"skipped"}:
                print("lowlevel: nothing was measured: every row is skipped, for the reason in it", file=sys.stderr)
                failed = True
    return int(failed)


def finish(fresh: list[Row], bench: Bench, path: Path | None, options: BenchOptions, out: TextIO) -> None:
    """Prints the tables, a suite's means, and writes the file."""
    found = bench.found(fresh)
    if found.rows:
        beside = reference.column(bench.environment["gpu"], paths.results_root())
        width = terminal.width(out)
        print("\n" + report.tables(found.rows, markdown=options.markdown, beside=beside, width=width), file=out)
    if bench.suite.name != "selection":
        folder = path.parent if path else paths.results_root() / paths.gpu_slug(bench.limits.name)
        if text := report.means_beside(bench.suite.name, found.rows, folder):
            print(f"\nGeometric means over the shapes of a suite\n{text}", file=out)
    if path and fresh:
        found.save(path)
        print(f"\n{len(found.rows)} rows saved in {path}", file=out, flush=True)


def choose(options: BenchOptions) -> Suite:
    """The suite named, or one made of the command line's globs and shapes."""
    if options.suite or not (options.patterns or options.shapes or options.dtypes or options.layouts or options.sweep):
        whole = suite.load(options.suite or ("quick" if options.quick else "main"))
        if options.patterns:
            raise UsageError(f"the suite {whole.name} has kernels of its own: leave {' '.join(options.patterns)} out")
        chosen = share_of(whole, suite.narrowed(whole, options.shapes, options.dtypes, options.layouts).groups)
    else:
        groups = suite.selection(options.patterns, options.shapes, options.dtypes, options.layouts, options.sweep)
        chosen = Suite("selection", "Selected variants", (3.0 if options.quick else 10.0) * len(groups), groups)
    return replace(chosen, budget_s=options.budget) if options.budget else chosen


def share_of(whole: Suite, groups: list[Group]) -> Suite:
    """These of a suite's groups, with their part of its time."""
    part = sum(map(_weight, groups)) / max(sum(map(_weight, whole.groups)), 1e-9)
    return replace(whole, groups=groups, budget_s=whole.budget_s * part)


def result_path(options: BenchOptions, chosen: Suite, limits: Limits) -> Path | None:
    """Where rows go: --json, else a suite's own file under bench/results. A selection is only printed, and so is a part
    of a suite, in whose file it would take the place of the whole, unless it is added to it."""
    if options.json_path:
        return options.json_path
    narrow = options.shapes or options.dtypes or options.layouts
    if chosen.name == "selection" or (narrow and not options.resume):
        return None
    return paths.results_root() / paths.gpu_slug(limits.name) / f"{chosen.name}.json"


class Bench:
    """A suite on one GPU: the child that owns the GPU, the binaries, and the rows so far."""

    def __init__(self, options: BenchOptions, chosen: Suite):
        self.options = options
        self.rows: list[Row] = []
        self._left = TimeLeft(0, 0.0)
        self._gpus = [Worker("gpu", gpu_worker.start, (options.device,)) for _ in range(options.processes)]
        self._gpu = self._gpus[0]
        self.limits, self.environment = self._gpu.call(gpu_worker.describe, deadline=VERIFY_DEADLINE_S)
        self.arch = parse_arch(options.arch) if options.arch else parse_arch(self.limits.capability)
        self.suite = suite.suited(chosen, self.limits)
        self._held: Results | None = None

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *_: object) -> None:
        for gpu in self._gpus:
            gpu.close()

    def first_screen(self) -> str:
        """The GPU, its software, and what may disturb a measurement."""
        e = self.environment
        lines = [
            f"{e['gpu']}: {e['sms']} SMs, {e['arch']}, at most {e['sm_clock_max_mhz']} MHz",
            f"{power_text(e)}, persistence mode {_on(e.get('persistence'))}, ECC {_on(e['ecc'])}, MIG {_on(e['mig'])}",
            f"driver {e['driver'] or '?'} (CUDA {e['cuda_driver']}), {e['nvrtc']}, cuBLAS {e['cublas'] or 'missing'}",
            f"Other processes on this GPU: {company_text(e['other_processes'])}",
        ]
        regime = "cool" if self.options.cool else "sustained"
        count = sum(map(_row_count, self.suite.groups))
        each = f"each in {len(self._gpus)} processes, " if len(self._gpus) > 1 else ""
        lines.append(f"{self.suite.title}: {count} rows, {each}{regime}, about {self.suite.budget_s:.0f} s of timing")
        return "\n".join(lines)

    def protocol(self) -> dict:
        """How the rows were measured."""
        return {
            "suite": self.suite.name,
            "timer": self.options.timer,
            "regime": "cool" if self.options.cool else "sustained",
            "budget_s": self.suite.budget_s,
            "least_rounds": Options.least_rounds,
            "most_rounds": Options.most_rounds,
            "noise": Options.noise,
            "data": "normal(0, 1)",
            "seed": 0,
            "processes": len(self._gpus),
            **(_SEVERAL if len(self._gpus) > 1 else {}),
        }

    def resume(self, path: Path | None) -> None:
        """Keeps the rows of an earlier run of the same command, and leaves out what it has done.

        UsageError where there is no file to go on in, or where its rows are not to be mixed with those of today.
        """
        if path is None or self.options.runs > 1:
            raise UsageError("--resume goes on in one file: give it a suite or --json, and no --runs")
        if not path.exists():
            return
        self._held = Results.load(path)
        if differ := results.differing(self._held, self.environment, self.protocol()):
            raise UsageError(
                f"{path} cannot be gone on with, it was measured otherwise ({differ[0]}): give another --json"
            )
        done = {(row.identity, row.repro) for row in self._held.rows if row.status in ("ok", "skipped")}
        self.suite = share_of(self.suite, [g for g in self.suite.groups if not self._wanted(g) <= done])

    def _wanted(self, group: Group) -> set[tuple]:
        rows = [self._row(group.problem, v) for v in (*group.variants, *group.yardsticks)]
        rows += [self._library_row(group.problem, name) for name in group.libraries]
        return {(row.identity, row.repro) for row in rows}

    def found(self, fresh: list[Row]) -> Results:
        """These rows, and those of the file that is gone on with."""
        now = Results(self.environment, self.protocol(), fresh)
        if self._held is None:
            return now
        return results.merged(self._held, now) if fresh else self._held

    def run(self, path: Path | None = None) -> list[Row]:
        """All groups. `self.rows` grows as they are done; with a path, the file there too."""
        self.rows = []
        binaries = self.build(self.suite.variants())
        groups = self.suite.groups
        count = sum(map(_row_count, groups))
        self._left = TimeLeft(count, self.suite.budget_s)
        with RowProgress(count, "measuring", self._left) as progress:
            for index, group in enumerate(groups):
                share = max(1.0, self._left.budget_left * _weight(group) / sum(map(_weight, groups[index:])))
                self.rows += self._group(group, binaries, share, progress)
                self._left.finished(_row_count(group))
                progress.advance(_row_count(group))
                if path:
                    self.found(self.rows).save(path)
        return self.rows

    def build(self, variants: Sequence[Variant]) -> dict[str, Binary | LowlevelError]:
        """Variant name -> its binary, or why there is none."""
        found: dict[str, Binary | LowlevelError] = {}
        requests = {}
        for variant in variants:
            try:
                requests[variant.name] = catalog.request(variant, self.arch)
            except UsageError as error:
                found[variant.name] = error
        with Progress(len(set(requests.values())), "compiling") as progress:
            built = build_all(list(requests.values()), progress=progress.reached)
        return {**found, **dict(zip(requests, built, strict=True))}

    def _group(self, group: Group, binaries: Mapping, budget_s: float, progress: RowProgress) -> list[Row]:
        """Has each process verify the members and then time those that passed, together."""
        rows = {v.name: self._row(group.problem, v) for v in (*group.variants, *group.yardsticks)}
        rows.update((name, self._library_row(group.problem, name)) for name in group.libraries)
        members = self._launchable(group, rows, binaries)
        turns: list[Mapping[str, Measurement]] = []
        parts = None
        for number, gpu in enumerate(self._gpus, 1):
            self._gpu = gpu
            if parts is not None:
                self._call(gpu_worker.adopt, group.problem, parts)
            measured = self._turn(group, rows, members, budget_s / len(self._gpus), progress, turns)
            turns.append(measured)
            for name in [name for name in members if rows[name].status != "ok"]:
                del members[name]
                if number > 1:
                    rows[name].reason = f"process {number}: {rows[name].reason}"
            if len(self._gpus) > 1:
                if number == 1 and members and not group.problem.whole:
                    parts = self._call(gpu_worker.reference, group.problem)
                self._call(gpu_worker.release)
        self._gpu = self._gpus[0]
        found = {name: joined([turn[name] for turn in turns]) for name in members if all(name in t for t in turns)}
        if found:
            self._fill(group.problem, rows, found)
        return list(rows.values())

    def _call(self, function: Callable, *arguments: object) -> object:
        """Something that spares work: a process that does not answer does it again, and what is wrong with it will show
        when it verifies."""
        with contextlib.suppress(LowlevelError):
            return self._gpu.call(function, *arguments, deadline=VERIFY_DEADLINE_S)
        return None

    def _launchable(self, group: Group, rows: Mapping[str, Row], binaries: Mapping) -> dict[str, Binary | None]:
        """Those that can be launched, by name; the other rows say why not."""
        members: dict[str, Binary | None] = {}
        for name, row in rows.items():
            binary = binaries.get(name)
            if isinstance(binary, LowlevelError):
                refused = isinstance(binary, UsageError) or refuses_numbers(catalog.find(name), binary)
                row.status, row.reason = "skipped" if refused else "failed", str(binary)
                continue
            if binary is not None:
                try:
                    self._describe(row, catalog.find(name), group.problem, binary)
                except UsageError as error:
                    row.status, row.reason = "skipped", str(error)
                    continue
            members[name] = binary
        return members

    def _turn(
        self,
        group: Group,
        rows: Mapping[str, Row],
        members: Mapping[str, Binary | None],
        budget_s: float,
        progress: RowProgress,
        before: Sequence[Mapping[str, Measurement]],
    ) -> Mapping[str, Measurement]:
        """One process verifies the members, and times those that passed. before: what other processes measured."""
        choices = {name: m.choice for name, m in before[0].items() if m.choice is not None} if before else {}
        checked = {v.name for v in group.variants}
        checked |= {name for name in group.libraries if library.computes(group.problem, name)}
        for name, binary in members.items():
            if name not in checked:
                rows[name].status, rows[name].reason = "ok", "moves as many bytes; a yardstick"
                continue
            progress.show(f"verifying {row_text(rows[name], group.problem)}")
            self._verify(name, rows[name], group.problem, binary, choices.get(name))
        right = {name: binary for name, binary in members.items() if rows[name].status == "ok"}
        if group.problem.operation == "probe" or not right:
            return {}
        options = replace(self.timing(budget_s), seed=len(before))  # each process its own orders of the rounds
        return self._measure(group, rows, right, frozenset(checked), options, progress, choices)

    def _describe(self, row: Row, variant: Variant, problem: Problem, binary: Binary) -> None:
        """What the compiler says of it; of several launches, the largest."""
        steps = variant.kernel.steps_for(problem)
        dynamic = [launch_shape(step.launch, variant.config, problem, self.limits).shared for step in steps]
        taken = [binary.entries[step.entry].resources for step in steps]
        row.arch = binary.arch
        row.registers = max(r.registers for r in taken)
        row.shared_bytes = max(r.shared + bytes_ for r, bytes_ in zip(taken, dynamic, strict=True))
        row.spill_bytes = max(r.spills for r in taken)

    def _verify(self, name: str, row: Row, problem: Problem, binary: Binary | None, choice: int | None) -> None:
        if binary is not None and (refusal := catalog.find(name).refusal(problem)):
            row.status, row.reason = "skipped", refusal
            return
        try:
            arguments = (name, problem, binary, 0, "normal", 1, choice)
            verdict: Verdict = self._gpu.call(gpu_worker.verify, *arguments, deadline=VERIFY_DEADLINE_S)
        except LowlevelError as error:
            self._fail(row, error)
            return
        row.status = "ok" if verdict.ok else "wrong"
        row.reason = verdict.reason
        row.max_error, row.error_bound = verdict.max_error, verdict.error_bound
        row.rms_error = verdict.rms_error if verdict.ok else None
        if (row.max_error is not None and row.max_error != row.max_error) or row.max_error == float("inf"):
            row.max_error = None

    def _measure(
        self,
        group: Group,
        rows: Mapping[str, Row],
        members: dict[str, Binary | None],
        checked: frozenset[str],
        options: Options,
        progress: RowProgress,
        choices: Mapping[str, int],
    ) -> Mapping[str, Measurement]:
        """Times the members. One that hangs or fails is marked, and the others start again without it."""
        while members:
            running, measured = next(iter(members)), {}
            try:
                arguments = (group.problem, members, options, checked, 0, choices)
                events = self._gpu.stream(gpu_worker.measure, *arguments, deadline=MEASURE_DEADLINE_S)
                for kind, value, *_ in events:
                    if kind == "running":
                        running = value
                        progress.show(f"timing {row_text(rows[running], group.problem)}")
                    elif kind == "raced":
                        self._left.timed(value)
                    elif kind == "result":
                        measured[value.name] = value
                return measured
            except LowlevelError as error:
                self._fail(rows[running], error)
                members = {name: binary for name, binary in members.items() if name != running}
        return {}

    def timing(self, budget_s: float) -> Options:
        """How a group's members are timed."""
        return Options(self.options.timer, self.options.cool, budget_s)

    def _fail(self, row: Row, error: LowlevelError) -> None:
        """Marks a row by how it failed. The child is replaced unless the failure was a plain refusal."""
        if isinstance(error, WorkerHung):
            row.status, row.reason = "hang", str(error)
        elif isinstance(error, WorkerDied):
            row.status, row.reason = "failed", f"the process running it {error}"
        elif isinstance(error, UsageError):
            row.status, row.reason = "skipped", str(error)
        else:
            row.status, row.reason = "failed", str(error)
            if isinstance(error, DeviceError):
                self._gpu.close()

    def _fill(self, problem: Problem, rows: Mapping[str, Row], measured: Mapping[str, Measurement]) -> None:
        bases = [name for name in measured if _is_yardstick(problem, rows[name])]
        best = min(bases, key=lambda name: measured[name].median_us) if bases else None
        usual = library.usual(problem) if problem.operation == "gemm" else None
        for name, measurement in measured.items():
            row = rows[name]
            _fill_times(row, problem, measurement, self.limits, self.options)
            if usual in measured:
                row.vs_cublas = processes_ratio(measured[usual].by_process, measurement.by_process)[0]
            if best:
                ratio = processes_ratio(measured[best].by_process, measurement.by_process)
                row.vs_best_library, row.ratio_low, row.ratio_high = ratio

    def _row(self, problem: Problem, variant: Variant) -> Row:
        kernel = variant.kernel
        row = self._any_row(problem, variant.name)
        row.variant, row.config, row.language = kernel.name, variant.config_text, kernel.language
        row.chosen_by = variant.chosen_by
        return row

    def _library_row(self, problem: Problem, name: str) -> Row:
        row = self._any_row(problem, name)
        row.variant, row.language = name, "library"
        return row

    def _any_row(self, problem: Problem, name: str) -> Row:
        """The problem's type is the row's: a copy of 32-bit words beside a bf16 transpose is a yardstick of bf16."""
        dtype = problem.type.dtype
        row = Row(problem.operation, name, dtype=dtype, layout=problem.layout, epilogue=problem.epilogue)
        row.accumulate = problem.type.accumulate if problem.flops else ""
        for key, value in problem.dimensions.items():
            setattr(row, key, value)
        row.repro = repro(problem, name, self.options)
        row.measured = str(self.environment.get("date", ""))
        return row


def repro(problem: Problem, name: str, options: BenchOptions) -> str:
    """The command that measures a row again; a library's row comes with any kernel of its problem, or with none."""
    words = ["lowlevel bench", f"'{name}'"]
    if problem.operation not in ("probe", "ceiling"):  # their size is their own
        words.append(problem.label)
    if name.startswith("library/"):
        words += [f"--dtype {problem.type.name}", *([f"--layout {problem.layout}"] if problem.layout else [])]
    if options.arch:
        words.append(f"--arch {options.arch}")
    if options.timer != "auto":
        words.append(f"--timer {options.timer}")
    return " ".join(words + (["--cool"] if options.cool else []))


def _weight(group: Group) -> float:
    """A group's claim on the time: its contenders, and up to five times more for shapes whose rounds are long."""
    if group.problem.operation == "probe":
        return 0.01
    return _row_count(group) * (1 + min(4.0, group.problem.flops / 2**37))


def _is_yardstick(problem: Problem, row: Row) -> bool:
    if problem.operation == "transpose":
        return row.variant == "library/copy" or row.variant.startswith("copy/")
    return row.language == "library"


def _fill_times(row: Row, problem: Problem, m: Measurement, limits: Limits, options: BenchOptions) -> None:
    row.median_us, row.iqr_us, row.samples = m.median_us, m.iqr_us, len(m.times_us)
    row.timer, row.cache, row.regime = m.timer, m.cache, "cool" if options.cool else "sustained"
    row.host_us, row.workspace_bytes = m.host_us, m.workspace_bytes
    row.sm_clock_mhz, row.power_w, row.throttle_reasons = m.clock_mhz, m.power_w, m.throttle_reasons
    row.config = row.config or m.config_text
    if wrong := m.error:
        row.status, row.reason = "wrong", wrong
        return
    if text := roofline.implausible(problem, limits, m.median_us):
        row.status, row.reason = "implausible", text
    if m.median_us > 0:
        row.tflops = roofline.tflops(problem, m.median_us)
        row.gb_per_s = roofline.gb_per_s(problem, m.median_us)
        row.percent_of_peak = roofline.percent_of_peak(problem, limits, m.median_us)


def _row_count(group: Group) -> int:
    return len(group.variants) + len(group.libraries) + len(group.yardsticks)


def row_text(row: Row, problem: Problem) -> str:
    """`gemm/02_tiled (ptx), 4096x4096x4096 fp32 NN`: the row that the progress line is about."""
    language = f" ({row.language})" if row.language not in ("", "library") else ""
    return " ".join(filter(None, (f"{row.variant}{language},", problem.label, row.dtype, row.layout)))


def power_text(environment: Mapping) -> str:
    """`power limit 700 W`, and the board's default where the limit is another."""
    limit, default = environment["power_limit_w"], environment.get("power_default_w")
    if limit is None:
        return "power limit ?"
    return f"power limit {limit:g} W" + (f" (default {default:g} W)" if default and default != limit else "")


def company_text(others: Sequence[str] | None) -> str:
    """Who else uses the GPU; NVML may not know."""
    return "unknown, NVML does not say" if others is None else ", ".join(others) or "none"


def _on(value: bool | None) -> str:
    return "?" if value is None else "on" if value else "off"
