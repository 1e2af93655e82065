"""The bench in several processes, and in parts: what is shared, what is pooled, what a resumed file holds."""

import io
import json

import numpy as np
import pytest
from fake_device import FakeContender, FakeDevice
from test_bench import ENVIRONMENT, NAIVE, TILED, gpu, product, run  # noqa: F401
from test_measure import Library

from lowlevel import bench, gpu_worker, suite
from lowlevel.bench import BenchOptions, run_bench
from lowlevel.errors import UsageError
from lowlevel.measure import Measurement, joined
from lowlevel.measure.statistics import paired_ratio, processes_ratio
from lowlevel.problems import gemm
from lowlevel.results import Results, Row, differing, merged
from lowlevel.worker import WorkerDied


class Processes:
    """Bench workers with a device and a state each; `speeds[i]` multiplies the times of TILED in process i. `calls` are
    (process, function, first argument); `broken` has what to raise at one of them."""

    def __init__(self, monkeypatch, base):
        self.calls, self.speeds, self.broken, count = [], {}, {}, iter(range(100))
        outer = self

        class One(base):
            def __init__(self, *_):
                self.number, self.state = next(count), gpu_worker.State(FakeDevice())

            def _enter(self, function, args):
                outer.calls.append((self.number, function.__name__, args[0] if args else None))
                gpu_worker._state, outer.now = self.state, self.number
                if (self.number, function.__name__, args and args[0]) in outer.broken:
                    raise outer.broken[self.number, function.__name__, args[0]]

            def call(self, function, *args, deadline):
                self._enter(function, args)
                return super().call(function, *args, deadline=deadline)

            def stream(self, function, *args, deadline):
                self._enter(function, args)
                yield from super().stream(function, *args, deadline=deadline)

        times = {NAIVE: 400.0, TILED: 200.0, "library/cublas": 40.0}
        monkeypatch.setattr(bench, "Worker", One)
        monkeypatch.setattr(
            gpu_worker,
            "contender",
            lambda name, _p, _b: FakeContender(
                name, product, times.get(name, 100.0) * (self.speeds.get(self.now, 1.0) if name == TILED else 1.0)
            ),
        )

    def did(self, name):
        return [number for number, function, _ in self.calls if function == name]


@pytest.fixture
def processes(gpu, monkeypatch):  # noqa: F811
    return Processes(monkeypatch, gpu)


def test_each_process_has_orders_of_its_own(processes, tmp_path, monkeypatch):
    """Who ran before whom moves a rate: the same orders again would make a habit of it."""
    seeds, measure = [], gpu_worker.measure

    def noted(problem, members, options, *rest):
        seeds.append(options.seed)
        yield from measure(problem, members, options, *rest)

    monkeypatch.setattr(gpu_worker, "measure", noted)
    run(tmp_path, processes=3)
    assert seeds == [0, 1, 2]


def test_each_process_verifies_and_times_and_the_rows_are_over_all(processes, tmp_path):
    processes.speeds = {0: 1.0, 1: 1.1, 2: 1.3}
    code, saved, text = run(tmp_path, processes=3)
    rows = {r.variant: r for r in saved.rows}
    assert code == 0
    assert sorted(processes.did("verify")) == [i for i in range(3) for _ in range(5)]
    assert processes.did("measure") == [0, 1, 2]
    tiled = rows["gemm/02_tiled"]
    assert tiled.median_us == pytest.approx(220.0)  # the middle process
    assert tiled.samples == 24
    assert tiled.vs_cublas == pytest.approx(40 / 220)
    assert (tiled.ratio_low, tiled.ratio_high) == (pytest.approx(40 / 260), pytest.approx(40 / 200))
    assert saved.protocol["processes"] == 3
    assert saved.protocol["interval"] == "bootstrap over processes and their rounds"
    assert "each in 3 processes" in text


def test_one_process_says_so_and_no_more(gpu, tmp_path):  # noqa: F811
    _, saved, text = run(tmp_path)
    assert saved.protocol["processes"] == 1
    assert "interval" not in saved.protocol
    assert "processes, sustained" not in text


def test_every_process_frees_the_problem_before_the_next(processes, tmp_path):
    run(tmp_path, processes=2)
    order = [(n, f) for n, f, _ in processes.calls if f in ("measure", "release")]
    assert order == [(0, "measure"), (0, "release"), (1, "measure"), (1, "release")]


def test_the_reference_of_a_large_problem_is_made_once(processes, tmp_path, monkeypatch):
    monkeypatch.setattr(gemm, "WHOLE_FLOPS", 0)
    monkeypatch.setattr("lowlevel.verify.Checker._library_result", lambda self: None)
    made, real = [], gemm.Gemm.expected
    monkeypatch.setattr(gemm.Gemm, "expected", lambda self, *rest: made.append(processes.now) or real(self, *rest))
    code, _, _ = run(tmp_path, processes=3)
    assert (code, made) == (0, [0])
    assert (processes.did("reference"), processes.did("adopt")) == ([0], [1, 2])


def test_a_failure_in_a_later_process_costs_the_row_and_no_other(processes, tmp_path):
    processes.broken[1, "verify", NAIVE] = WorkerDied("crashed (SIGSEGV)")
    code, saved, _ = run(tmp_path, processes=3)
    rows = {r.variant: r for r in saved.rows}
    assert code == 1
    assert (rows["gemm/01_naive"].status, rows["gemm/01_naive"].median_us) == ("failed", None)
    assert rows["gemm/01_naive"].reason.startswith("process 2: ")
    assert (2, "verify", NAIVE) not in processes.calls
    assert rows["gemm/02_tiled"].samples == 24


def test_a_process_that_makes_no_reference_known_costs_nothing(processes, tmp_path, monkeypatch):
    monkeypatch.setattr(gemm, "WHOLE_FLOPS", 0)
    monkeypatch.setattr("lowlevel.verify.Checker._library_result", lambda self: None)
    problem = gemm.Gemm(64, 48, 32, gemm.ELEMENTS and bench.catalog.find(TILED).type, "NN")
    processes.broken[1, "adopt", problem] = WorkerDied("crashed (SIGSEGV)")
    code, saved, _ = run(tmp_path, processes=2)
    assert code == 0
    assert {r.samples for r in saved.rows} == {16}


def test_the_librarys_algorithm_is_chosen_once(processes, tmp_path, monkeypatch):
    class Offering(Library):
        """Its second algorithm is the fastest. In another process the first would be."""

        def __init__(self, name, function):
            super().__init__(name, function)
            self.times = (50.0, 30.0, 40.0) if processes.now == 0 else (10.0, 30.0, 40.0)

        def candidates(self, device, problem, buffers):
            return [FakeContender("c", product, time).bind(device, problem, buffers) for time in self.times]

        def bind(self, device, problem, buffers):
            self.config_text = f"lt #{self.choice + 1} of 3"
            return super().bind(device, problem, buffers)

    real = gpu_worker.contender
    lt = "library/cublaslt"
    monkeypatch.setattr(gpu_worker, "contender", lambda n, p, b: Offering(n, product) if n == lt else real(n, p, b))
    _, saved, _ = run(tmp_path, processes=2)
    (row,) = (r for r in saved.rows if r.variant == lt)
    assert row.config == "lt #2 of 3"
    assert row.median_us == pytest.approx(31.0)


def test_figures_of_processes_joined():
    first = Measurement("x", "graph", "rotated", [1.0, 3.0], [1500.0], [400.0], 4, 2.0, 0, "lt #1 of 2", "", 0)
    second = Measurement(
        "x", "graph", "rotated 2 of 3", [10.0] * 3, [1600.0], [500.0], 1, 4.0, 0, "lt #1 of 3", "bad", 0
    )
    one = joined([first, second])
    assert one.by_process == [[1.0, 3.0], [10.0] * 3]
    assert (one.median_us, one.clock_mhz, one.throttled, one.host_us) == (6.0, 1550.0, 5, 3.0)
    assert (one.cache, one.config_text) == ("rotated / rotated 2 of 3", "lt #1 of 2 / lt #1 of 3")
    assert one.error == "process 2: bad"
    assert joined([first]) is first
    assert first.by_process == [[1.0, 3.0]]


def test_the_interval_over_processes_is_as_wide_as_they_differ():
    noise = np.random.default_rng(0)
    base = [list(noise.normal(100, 0.1, 40)) for _ in range(5)]
    own = [list(noise.normal(100, 0.1, 40) / ratio) for ratio in (0.98, 0.99, 1.0, 1.01, 1.02)]
    ratio, low, high = processes_ratio(base, own)
    assert ratio == pytest.approx(1.0, abs=1e-3)
    assert 0.975 < low < 0.985
    assert 1.015 < high < 1.025
    _, low, high = paired_ratio(np.concatenate(base), np.concatenate(own))
    assert high - low < 0.02  # rounds taken for independent
    assert processes_ratio(base[:1], own[:1]) == paired_ratio(base[0], own[0])
    assert processes_ratio([[2.0] * 3, [3.0] * 9], [[1.0] * 3, [1.0] * 9])[0] == 2.5


SECTION = '[[section]]\noperation = "gemm"\nkernels = ["cuda:gemm/02_tiled"]\nshapes = "64,128x64x32,32,48x32x16"\n'


@pytest.fixture
def small(tmp_path):
    path = tmp_path / "small.toml"
    path.write_text(f'title = "Small"\nbudget_s = 80\n{SECTION}')
    return str(path)


def labels(chosen):
    return [g.problem.label for g in chosen.groups]


def test_a_part_of_a_suite_and_its_part_of_the_time(small):
    whole = bench.choose(BenchOptions(suite=small))
    assert len(whole.groups) == 4
    part = bench.choose(BenchOptions(suite=small, shapes="64", layouts=("NN",)))
    assert labels(part) == ["64x64x64"]
    assert part.budget_s == pytest.approx(20, rel=0.01)
    two = BenchOptions(suite=small, shapes="128x64x32,32", dtypes=("fp32",))
    assert labels(bench.choose(two)) == ["128x64x32", "32x32x32"]
    assert bench.choose(BenchOptions(suite=small, shapes="64", budget=7.0)).budget_s == 7.0
    with pytest.raises(UsageError, match="the suite small has nothing of 4096 bf16"):
        bench.choose(BenchOptions(suite=small, shapes="4096", dtypes=("bf16",)))
    with pytest.raises(UsageError, match=r"kernels of its own: leave gemm/\* out"):
        bench.choose(BenchOptions(suite=small, patterns=("gemm/*",)))


def test_a_part_does_not_take_the_place_of_the_suites_own_file(small, monkeypatch, tmp_path):
    monkeypatch.setattr(bench.paths, "results_root", lambda: tmp_path)
    limits = FakeDevice().limits
    part, whole = BenchOptions(suite=small, shapes="64"), BenchOptions(suite=small)
    assert bench.result_path(part, bench.choose(part), limits) is None
    assert bench.result_path(whole, bench.choose(whole), limits).name == "small.json"
    added = BenchOptions(suite=small, shapes="64", resume=True)
    assert bench.result_path(added, bench.choose(added), limits).name == "small.json"


def resumed(tmp_path, small, **options):
    path, out = tmp_path / "rows.json", io.StringIO()
    code = run_bench(BenchOptions(suite=small, json_path=path, resume=True, **options), out)
    return code, Results.load(path), out.getvalue()


def measured(calls):
    return [problem.label for _, function, problem in calls if function == "measure"]


def test_parts_are_added_to_one_file(processes, small, tmp_path, monkeypatch):
    _, first, _ = resumed(tmp_path, small, shapes="32,48x32x16")
    monkeypatch.setitem(ENVIRONMENT, "date", "2026-01-02")
    monkeypatch.setitem(ENVIRONMENT, "uuid", "GPU-other")
    processes.calls.clear()
    code, both, text = resumed(tmp_path, small)
    assert measured(processes.calls) == ["64x64x64", "128x64x32"]
    assert (code, len(both.rows)) == (0, 2 * len(first.rows))
    assert [r.measured for r in both.rows] == ["2026-01-01"] * len(first.rows) + ["2026-01-02"] * len(first.rows)
    assert both.environment["uuid"] == "GPU-other"
    assert [e["date"] for e in both.environment["earlier"]] == ["2026-01-01"]
    assert f"{len(first.rows)} rows, " in text
    assert not (tmp_path / "rows.2.json").exists()
    before = (tmp_path / "rows.json").read_text()
    processes.calls.clear()
    assert resumed(tmp_path, small)[0] == 0
    assert measured(processes.calls) == []
    assert (tmp_path / "rows.json").read_text() == before


def test_after_ctrl_c_the_same_command_goes_on(processes, small, tmp_path, monkeypatch):
    real, groups = bench.Bench._group, []

    def third_is_interrupted(self, *args):
        groups.append(1)
        if len(groups) == 3:
            assert len(Results.load(tmp_path / "rows.json").rows) == 8  # saved as it goes
            raise KeyboardInterrupt
        return real(self, *args)

    monkeypatch.setattr(bench.Bench, "_group", third_is_interrupted)
    with pytest.raises(KeyboardInterrupt):
        resumed(tmp_path, small)
    assert not (tmp_path / "rows.partial.json").exists()
    processes.calls.clear()
    _, saved, _ = resumed(tmp_path, small)
    assert len(measured(processes.calls)) == 2
    assert len(saved.rows) == 16


def test_what_failed_is_measured_again(processes, small, tmp_path):
    processes.broken[0, "verify", "library/cublas"] = WorkerDied("crashed (SIGSEGV)")
    assert resumed(tmp_path, small, shapes="64")[0] == 1
    processes.broken.clear()
    code, saved, _ = resumed(tmp_path, small, shapes="64")
    assert (code, len(saved.rows), {r.status for r in saved.rows}) == (0, 4, {"ok"})
    assert "earlier" not in saved.environment


@pytest.mark.parametrize(
    ("changed", "options", "said"),
    [
        ({"commit": "b2"}, {}, "commit: None in it, b2 here"),
        ({"driver": "590"}, {}, "driver: 580.1 in it, 590 here"),
        ({}, {"processes": 2}, "processes: 1 in it, 2 here"),
        ({}, {"cool": True}, "regime: sustained in it, cool here"),
    ],
)
def test_what_was_measured_otherwise_is_not_gone_on_with(
    processes, small, tmp_path, monkeypatch, changed, options, said
):
    resumed(tmp_path, small, shapes="64")
    before = (tmp_path / "rows.json").read_text()
    for name, value in changed.items():
        monkeypatch.setitem(ENVIRONMENT, name, value)
    with pytest.raises(UsageError, match=said):
        resumed(tmp_path, small, **options)
    assert (tmp_path / "rows.json").read_text() == before


def test_resume_needs_one_file(processes, small, tmp_path):
    with pytest.raises(UsageError, match="goes on in one file"):
        run_bench(BenchOptions(patterns=(TILED,), shapes="64", resume=True), io.StringIO())
    with pytest.raises(UsageError, match="no --runs"):
        resumed(tmp_path, small, runs=2)


def test_rows_of_a_file_without_dates_get_the_files(tmp_path):
    held = Results({"date": "d1", "gpu": "x"}, {}, [Row("gemm", "a"), Row("gemm", "b")])
    both = merged(held, Results({"date": "d2", "gpu": "x"}, {}, [Row("gemm", "b", measured="d2")]))
    assert [(r.variant, r.measured) for r in both.rows] == [("a", "d1"), ("b", "d2")]
    third = merged(both, Results({"date": "d3"}, {}, [Row("gemm", "b", measured="d3")]))
    assert [r.measured for r in third.rows] == ["d1", "d3"]
    assert [e["date"] for e in third.environment["earlier"]] == ["d1"]  # d2 has no row left
    assert "earlier" not in third.environment["earlier"][0]
    json.dumps(third.environment)
    assert differing(held, {"gpu": "x"}, {"budget_s": 3.0}) == []


def test_narrowing_by_shape_takes_problems_of_any_operation():
    main = suite.load("main")
    found = suite.narrowed(main, "4096", (), ()).groups
    assert {g.problem.operation for g in found} == {"gemm", "transpose", "copy"}
    assert {n for g in found for n in g.problem.label.split("x")} == {"4096"}
    found = suite.narrowed(suite.load("gemm-hopper"), "8192x28672x4096,512", ("bf16",), ("NT",)).groups
    assert [g.problem.label for g in found] == ["512x512x512", "8192x28672x4096"]
    assert {(g.problem.type.dtype, g.problem.layout) for g in found} == {("bf16", "NT")}
