"""`lowlevel bench`: build, verify, measure, tabulate, save.

One child process owns the GPU. Every variant and shape is verified there under a deadline; those that passed are
then timed together in it, under a deadline too. A hang, a fault or a crashing compiler costs one row: the child is
replaced and the rest goes on.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TextIO

from lowlevel import catalog, gpu_worker, paths, reference, report, results, roofline, suite
from lowlevel.catalog import library
from lowlevel.catalog.entry import Variant
from lowlevel.catalog.sweep import Sweep
from lowlevel.contender import launch_shape
from lowlevel.errors import DeviceError, LowlevelError, UsageError
from lowlevel.hardware import Limits
from lowlevel.measure import Measurement, Options
from lowlevel.measure.statistics import paired_ratio
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


@dataclass(frozen=True)
class BenchOptions:
    """What the command line asks for. `suite` or `patterns` choose the rows; `budget` is seconds of timing."""

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
    sweep: Sweep = field(default_factory=dict)


def run_bench(options: BenchOptions, out: TextIO | None = None) -> int:
    """Runs what `options` name, prints the tables, saves the rows. Returns 0, or 1 when a row is not ok.

    Raises UsageError or MissingError for what cannot be started. On Ctrl-C or SIGTERM the rows measured so far are
    printed and saved before KeyboardInterrupt passes on.
    """
    out = out or sys.stdout
    chosen = choose(options)
    with Bench(options, chosen) as bench:
        path = result_path(options, chosen, bench.limits)
        if path:
            results.check_writable(path)
        print(bench.first_screen(), file=out, flush=True)
        failed = False
        for number in range(options.runs):
            if options.runs > 1:
                print(f"\nRun {number + 1} of {options.runs}", file=out, flush=True)
            try:
                rows = bench.run()
            except KeyboardInterrupt:
                finish(bench.rows, bench, path and path.with_name(f"{path.stem}.partial.json"), options, out)
                raise
            if path:
                results.keep_previous(path)
            finish(rows, bench, path, options, out)
            failed = failed or any(row.status not in ("ok", "skipped") for row in rows)
    return int(failed)


def finish(rows: list[Row], bench: Bench, path: Path | None, options: BenchOptions, out: TextIO) -> None:
    """Prints the tables, a suite's means, and writes the file."""
    if rows:
        beside = reference.column(bench.environment["gpu"], paths.results_root())
        print("\n" + report.tables(rows, markdown=options.markdown, beside=beside), file=out)
    if bench.suite.name != "selection":
        folder = path.parent if path else paths.results_root() / paths.gpu_slug(bench.limits.name)
        if text := report.means_beside(bench.suite.name, rows, folder):
            print(f"\nGeometric means over the shapes of a suite\n{text}", file=out)
    if path and rows:
        Results(bench.environment, bench.protocol(), rows).save(path)
        print(f"\n{len(rows)} rows saved in {path}", file=out, flush=True)


def choose(options: BenchOptions) -> Suite:
    """The suite named, or one made of the command line's globs and shapes."""
    if options.suite or not (options.patterns or options.shapes or options.dtypes or options.layouts or options.sweep):
        chosen = suite.load(options.suite or ("quick" if options.quick else "main"))
    else:
        groups = suite.selection(options.patterns, options.shapes, options.dtypes, options.layouts, options.sweep)
        chosen = Suite("selection", "Selected variants", (3.0 if options.quick else 10.0) * len(groups), groups)
    return replace(chosen, budget_s=options.budget) if options.budget else chosen


def result_path(options: BenchOptions, chosen: Suite, limits: Limits) -> Path | None:
    """Where rows go: --json, else a suite's own file under bench/results; a selection is only printed."""
    if options.json_path:
        return options.json_path
    if chosen.name == "selection":
        return None
    return paths.results_root() / paths.gpu_slug(limits.name) / f"{chosen.name}.json"


class Bench:
    """A suite on one GPU: the child that owns the GPU, the binaries, and the rows so far."""

    def __init__(self, options: BenchOptions, chosen: Suite):
        self.options = options
        self.rows: list[Row] = []
        self._left = TimeLeft(0, 0.0)
        self._gpu = Worker("gpu", gpu_worker.start, (options.device,))
        self.limits, self.environment = self._gpu.call(gpu_worker.describe, deadline=VERIFY_DEADLINE_S)
        self.arch = parse_arch(options.arch) if options.arch else parse_arch(self.limits.capability)
        self.suite = suite.suited(chosen, self.limits)

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *_: object) -> None:
        self._gpu.close()

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
        lines.append(f"{self.suite.title}: {count} rows, {regime}, about {self.suite.budget_s:.0f} s of timing")
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
        }

    def run(self) -> list[Row]:
        """All groups. `self.rows` grows as they are done."""
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
        """Verifies each member, then times those that passed, together."""
        rows = {v.name: self._row(group.problem, v) for v in (*group.variants, *group.yardsticks)}
        rows.update((name, self._library_row(group.problem, name)) for name in group.libraries)
        members: dict[str, Binary | None] = {}
        checked = [v.name for v in group.variants]
        checked += [name for name in group.libraries if library.computes(group.problem, name)]
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
            if name not in checked:
                row.status, row.reason = "ok", "moves as many bytes; a yardstick"
                members[name] = binary
                continue
            progress.show(f"verifying {row_text(row, group.problem)}")
            self._verify(name, row, group.problem, binary)
            if row.status == "ok":
                members[name] = binary
        if group.problem.operation != "probe" and members:
            self._measure(group, rows, members, frozenset(checked), budget_s, progress)
        return list(rows.values())

    def _describe(self, row: Row, variant: Variant, problem: Problem, binary: Binary) -> None:
        """What the compiler says of it; of several launches, the largest."""
        steps = variant.kernel.steps_for(problem)
        dynamic = [launch_shape(step.launch, variant.config, problem, self.limits).shared for step in steps]
        taken = [binary.entries[step.entry].resources for step in steps]
        row.arch = binary.arch
        row.registers = max(r.registers for r in taken)
        row.shared_bytes = max(r.shared + bytes_ for r, bytes_ in zip(taken, dynamic, strict=True))
        row.spill_bytes = max(r.spills for r in taken)

    def _verify(self, name: str, row: Row, problem: Problem, binary: Binary | None) -> None:
        if binary is not None and (refusal := catalog.find(name).refusal(problem)):
            row.status, row.reason = "skipped", refusal
            return
        try:
            verdict: Verdict = self._gpu.call(gpu_worker.verify, name, problem, binary, deadline=VERIFY_DEADLINE_S)
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
        budget_s: float,
        progress: RowProgress,
    ) -> None:
        """Times the members. One that hangs or fails is marked, and the others start again without it."""
        options = self.timing(budget_s)
        while members:
            running, measured = next(iter(members)), {}
            try:
                events = self._gpu.stream(
                    gpu_worker.measure, group.problem, members, options, checked, deadline=MEASURE_DEADLINE_S
                )
                for kind, value, *_ in events:
                    if kind == "running":
                        running = value
                        progress.show(f"timing {row_text(rows[running], group.problem)}")
                    elif kind == "raced":
                        self._left.timed(value)
                    elif kind == "result":
                        measured[value.name] = value
                self._fill(group.problem, rows, measured)
                return
            except LowlevelError as error:
                self._fail(rows[running], error)
                members = {name: binary for name, binary in members.items() if name != running}

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
                row.vs_cublas = paired_ratio(measured[usual].times_us, measurement.times_us)[0]
            if best:
                ratio = paired_ratio(measured[best].times_us, measurement.times_us)
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
