"""The bench on a GPU of plain Python: rows, ratios, hangs and crashes, interruption, files."""

import io
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from fake_device import FakeContender, FakeDevice
from test_measure import NoTime, StillClock

from lowlevel import bench, gpu_worker, paths, suite
from lowlevel.bench import BenchOptions, run_bench
from lowlevel.dtypes import BF16
from lowlevel.errors import CompileError, DeviceError, UsageError
from lowlevel.measure import rounds
from lowlevel.problems.ceiling import Ceiling
from lowlevel.results import Results, runs
from lowlevel.worker import WorkerDied, WorkerHung

NAIVE, TILED = "cuda:gemm/01_naive[fp32,NN,8x32]", "cuda:gemm/02_tiled[fp32,NN,32x32x32]"


def product(arrays):
    return (arrays["A"].astype(np.float64) @ arrays["B"]).astype(np.float32)


class FakeGpu:
    """A Worker's interface over a FakeDevice in this process. `faults`: contender name -> exception to raise when it
    is measured; `broken`: when it is verified."""

    faults: dict = {}
    broken: dict = {}
    closed = 0

    def __init__(self, *_):
        gpu_worker._state = gpu_worker.State(FakeDevice())

    def call(self, function, *args, deadline):
        if function is gpu_worker.describe:
            return gpu_worker._state.device.limits, ENVIRONMENT
        if function is gpu_worker.verify and args[0] in self.broken:
            raise self.broken[args[0]]
        return function(*args)

    def stream(self, function, *args, deadline):
        for event in function(*args):
            yield event
            if event[0] == "running" and event[1] in self.faults:
                raise self.faults[event[1]]

    def close(self):
        FakeGpu.closed += 1


ENVIRONMENT = {
    "gpu": "NVIDIA H200", "sms": 132, "arch": "sm_90", "sm_clock_max_mhz": 1980, "power_limit_w": 700.0, "ecc": True,
    "mig": False, "driver": "580.1", "cuda_driver": "13.0", "nvrtc": "NVRTC 13.0", "cublas": "13.1.0",
    "other_processes": ["another"], "date": "2026-01-01",
}  # fmt: skip


@pytest.fixture
def gpu(monkeypatch):
    """Every kernel and library call computes the product; 02 is twice as fast as 01, the library ten times."""
    times = {
        NAIVE: 400.0,
        TILED: 200.0,
        "library/cublas": 40.0,
        "library/cublas_pedantic": 44.0,
        "library/cublaslt": 50.0,
    }
    monkeypatch.setattr(bench, "Worker", FakeGpu)
    monkeypatch.setattr(FakeGpu, "faults", {})
    monkeypatch.setattr(FakeGpu, "broken", {})
    monkeypatch.setattr(rounds, "time", NoTime())
    monkeypatch.setattr(rounds, "ClockProbe", StillClock)
    monkeypatch.setattr(rounds, "segment_ms", lambda _problem: 0.5)
    monkeypatch.setattr(
        gpu_worker, "contender", lambda name, _p, _b: FakeContender(name, product, times.get(name, 100.0))
    )
    return FakeGpu


def run(tmp_path, **options):
    path = tmp_path / "rows.json"
    chosen = BenchOptions(**{"patterns": (NAIVE, TILED), "shapes": "64x48x32", "json_path": path, **options})
    out = io.StringIO()
    code = run_bench(chosen, out)
    return code, Results.load(path), out.getvalue()


def test_rows_ratios_and_table(gpu, tmp_path):
    code, saved, text = run(tmp_path)
    rows = {r.variant: r for r in saved.rows}
    assert code == 0
    assert {r.status for r in saved.rows} == {"ok"}
    assert rows["gemm/02_tiled"].median_us == pytest.approx(200.0)
    assert rows["gemm/02_tiled"].vs_cublas == pytest.approx(0.2)
    assert rows["gemm/01_naive"].vs_best_library == pytest.approx(0.1)
    assert rows["library/cublas_pedantic"].vs_cublas == pytest.approx(40 / 44)
    assert rows["library/cublas"].vs_cublas == pytest.approx(1.0)
    assert rows["gemm/01_naive"].ratio_low <= 0.1001
    assert rows["gemm/02_tiled"].registers > 0
    assert rows["gemm/02_tiled"].arch == "sm_90"
    assert rows["gemm/02_tiled"].repro == f"lowlevel bench '{TILED}' 64x48x32"
    assert "Other processes on this GPU: another" in text
    assert "0.200" in text


def test_the_first_screen_says_what_may_disturb(gpu, tmp_path, monkeypatch):
    board = {"power_limit_w": 500.0, "power_default_w": 700.0, "persistence": True, "other_processes": []}
    monkeypatch.setattr("test_bench.ENVIRONMENT", {**ENVIRONMENT, **board})
    text = run(tmp_path)[2]
    assert "power limit 500 W (default 700 W), persistence mode on, ECC on, MIG off" in text
    assert "Other processes on this GPU: none" in text
    assert "Selected variants: 5 rows" in text


def test_on_another_gpu_the_committed_figures_stand_beside(gpu, tmp_path, monkeypatch):
    monkeypatch.setattr(bench.paths, "results_root", lambda: tmp_path / "results")
    run(tmp_path)
    (tmp_path / "results" / "h200").mkdir(parents=True)
    (tmp_path / "rows.json").rename(tmp_path / "results" / "h200" / "main.json")
    assert "on NVIDIA H200" not in run(tmp_path)[2]
    monkeypatch.setattr("test_bench.ENVIRONMENT", {**ENVIRONMENT, "gpu": "NVIDIA A100-SXM4-80GB"})
    text = run(tmp_path)[2]
    assert "on NVIDIA H200" in text
    assert text.count("0.0 TFLOP/s") == 5


def test_a_hang_costs_one_row(gpu, tmp_path):
    gpu.faults[NAIVE] = WorkerHung("no answer in 90 s; killed")
    code, saved, _ = run(tmp_path)
    rows = {r.variant: r for r in saved.rows}
    assert code == 1
    assert rows["gemm/01_naive"].status == "hang"
    assert rows["gemm/01_naive"].median_us is None
    assert rows["gemm/02_tiled"].status == "ok"
    assert rows["gemm/02_tiled"].vs_cublas == pytest.approx(0.2)


def test_a_crash_and_a_fault_cost_their_rows(gpu, tmp_path):
    gpu.broken[NAIVE] = WorkerDied("crashed (SIGSEGV)")
    gpu.broken[TILED] = DeviceError("CUDA_ERROR_ILLEGAL_ADDRESS while waiting", "CUDA_ERROR_ILLEGAL_ADDRESS", 700)
    closed = gpu.closed
    code, saved, _ = run(tmp_path)
    rows = {r.variant: r for r in saved.rows}
    assert code == 1
    assert "SIGSEGV" in rows["gemm/01_naive"].reason
    assert rows["gemm/02_tiled"].status == "failed"
    assert gpu.closed >= closed + 2  # the child was replaced after the fault
    assert rows["library/cublas"].status == "ok"


def test_a_compiler_that_fails_costs_its_row(gpu, tmp_path, monkeypatch):
    real = bench.build_all

    def failing(requests, **options):
        return [CompileError("compiler crashed (SIGSEGV)"), *real(requests[1:], **options)]

    monkeypatch.setattr(bench, "build_all", failing)
    code, saved, _ = run(tmp_path)
    rows = {r.variant: r for r in saved.rows}
    assert (code, rows["gemm/01_naive"].status, rows["gemm/02_tiled"].status) == (1, "failed", "ok")


def test_a_wrong_result_is_not_timed(gpu, tmp_path, monkeypatch):
    right = gpu_worker.contender
    wrong = lambda name, p, b: FakeContender(name, lambda a: product(a) * 1.01) if name == NAIVE else right(name, p, b)  # noqa: E731
    monkeypatch.setattr(gpu_worker, "contender", wrong)
    code, saved, text = run(tmp_path)
    row = next(r for r in saved.rows if r.variant == "gemm/01_naive")
    assert (code, row.status, row.median_us) == (1, "wrong", None)
    assert "wrong: C[" in text


def test_interruption_keeps_the_rows_measured(gpu, tmp_path, monkeypatch):
    path = tmp_path / "rows.json"
    real, calls = bench.Bench._group, []

    def second_is_interrupted(self, *args):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(self, *args)

    monkeypatch.setattr(bench.Bench, "_group", second_is_interrupted)
    options = BenchOptions(patterns=(TILED,), shapes="64x48x32,32x32x32", json_path=path)
    with pytest.raises(KeyboardInterrupt):
        run_bench(options, io.StringIO())
    assert not path.exists()
    assert len(Results.load(tmp_path / "rows.partial.json").rows) == 4


def test_three_runs_are_kept(gpu, tmp_path):
    run(tmp_path, runs=4)
    kept = runs(tmp_path / "rows.json")
    assert [p.name for p in kept] == ["rows.1.json", "rows.2.json", "rows.json"]
    dates = [json.loads(p.read_text())["protocol"]["seed"] for p in kept]
    assert len(dates) == 3


def test_an_unwritable_place_is_refused_before_measuring(gpu, tmp_path):
    with pytest.raises(UsageError, match="cannot write"):
        run(tmp_path, json_path=tmp_path)
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(UsageError, match="cannot write"):
        run(tmp_path, json_path=blocked / "rows.json")


def test_probes_are_verified_and_not_timed(gpu, tmp_path, monkeypatch):
    identity = lambda name, _p, _b: FakeContender(name, lambda a: a["A"])  # noqa: E731
    monkeypatch.setattr(gpu_worker, "contender", identity)
    code, saved, text = run(tmp_path, patterns=("probe/tensor_map",), shapes="")
    assert (code, saved.rows[0].status, saved.rows[0].median_us) == (0, "ok", None)
    assert "Probes of the launch layer" in text


def test_a_probe_of_arithmetic_is_timed_and_has_a_rate(gpu, tmp_path, monkeypatch):
    right = lambda operands: next(Ceiling(BF16).expected(operands)).value  # noqa: E731
    monkeypatch.setattr(gpu_worker, "contender", lambda name, _p, _b: FakeContender(name, right, 4000.0))
    code, saved, text = run(tmp_path, patterns=("probe/mma_ceiling",), dtypes=("bf16",), shapes="")
    (row,) = saved.rows
    assert (code, row.status, row.op) == (0, "ok", "ceiling")
    assert row.tflops == pytest.approx(2 * 512 * 64 * 32 * 2**20 / 4000e-6 / 1e12)
    assert row.percent_of_peak == pytest.approx(100 * row.tflops / (132 * 4096 * 1980e6 / 1e12))
    assert row.repro == "lowlevel bench 'cuda:probe/mma_ceiling[bf16]'"
    assert "ceiling 512 x 64" in text


def test_a_transpose_is_compared_with_copies(gpu, tmp_path, monkeypatch):
    def mover(name, _p, _b):
        if name.startswith(("library", "cuda:copy")):
            return FakeContender(name, lambda a: a["A"].reshape(48, 64), 20.0 if "library" in name else 16.0)
        return FakeContender(name, lambda a: a["A"].T, 32.0)

    monkeypatch.setattr(gpu_worker, "contender", mover)
    code, saved, _ = run(tmp_path, patterns=("cuda:transpose/01_naive[fp32]",), shapes="64x48")
    rows = {r.variant: r for r in saved.rows}
    assert code == 0
    assert rows["transpose/01_naive"].vs_best_library == pytest.approx(0.5)  # of the faster copy
    assert rows["transpose/01_naive"].vs_cublas is None
    assert rows["copy/01_vectorised"].status == "ok"


def test_every_suite_loads_and_names_only_what_exists():
    names = sorted(path.stem for path in bench.paths.suites_root().glob("*.toml"))
    assert {"chapter", "epilogues", "main", "quick"} <= set(names)
    for name in names:
        loaded = suite.load(name)
        assert loaded.groups
        assert loaded.budget_s > 0
    operations = {g.problem.operation for g in suite.load("main").groups}
    assert operations == {"gemm", "transpose", "copy", "probe", "ceiling"}
    types = {g.problem.type.dtype for g in suite.load("main").groups if g.problem.operation == "gemm"}
    assert types == {"fp32", "tf32", "fp16", "bf16", "fp8"}


def test_a_suite_that_is_not_there_or_not_right(tmp_path):
    with pytest.raises(UsageError, match=r"no suite 'nothing'; there are: .*main, main-seeded, quick"):
        suite.load("nothing")
    bad = tmp_path / "bad.toml"
    bad.write_text("[[section]]\noperation = 'gemm'\nkernel = ['x']\n")
    with pytest.raises(UsageError, match="unknown key 'kernel'"):
        suite.load(str(bad))
    bad.write_text("[[section")
    with pytest.raises(UsageError, match="does not parse"):
        suite.load(str(bad))
    bad.write_bytes(b"title = '\xff'")
    with pytest.raises(UsageError, match="not a text in UTF-8"):
        suite.load(str(bad))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[section]]", "a section without kernels lacks 'operation'"),
        ("[[section]]\nkernels = ['gemm/01']", "a section lacks 'operation'"),
        ("[[section]]\noperation = 'gemm'\nlayouts = ['NN']", "a section without kernels lacks 'types'"),
        ("[[section]]\noperation = 'gemm'\nkernels = 'gemm/01'", "kernels is a list of names"),
        (
            "[[section]]\noperation = 'gemm'\nkernels = ['gemm/01']\ntypes = ['fp9']",
            "types has no 'fp9'; there are: fp32",
        ),
        ("[[section]]\noperation = 'gemm'\nkernels = ['gemm/01']\nlayouts = [1]", "layouts is a list of names"),
        ("[section]\noperation = 'gemm'", r"sections are tables, each headed \[\[section\]\]"),
        ("budget_s = 'long'", "budget_s is a number of seconds"),
    ],
)
def test_a_suite_that_says_too_little_or_wrong_things(tmp_path, text, said):
    bad = tmp_path / "bad.toml"
    bad.write_text(text)
    with pytest.raises(UsageError, match=f"bad.toml: {said}"):
        suite.load(str(bad))


def test_gpu_names_become_folders():
    assert paths.gpu_slug("NVIDIA H200") == "h200"
    assert paths.gpu_slug("NVIDIA A100-SXM4-80GB") == "a100-sxm4-80gb"


def test_results_go_to_the_gpus_folder():
    limits = SimpleNamespace(name="NVIDIA H100 PCIe")
    path = bench.result_path(BenchOptions(), suite.Suite("main", "", 1.0), limits)
    assert path.parts[-3:] == ("results", "h100-pcie", "main.json")
    assert bench.result_path(BenchOptions(), suite.Suite("selection", "", 1.0), limits) is None
    assert bench.result_path(BenchOptions(json_path=Path("x.json")), suite.Suite("main", "", 1.0), limits) == Path(
        "x.json"
    )


def test_a_bench_of_nothing_is_told(gpu, tmp_path, monkeypatch, capsys):
    """As `build` and `verify` of nothing."""
    real = bench.Bench.run

    def skipped(self, path=None):
        rows = real(self, path)
        for row in rows:
            row.status = "skipped"
        return rows

    monkeypatch.setattr(bench.Bench, "run", skipped)
    code, _, _ = run(tmp_path)
    assert code == 1
    assert "nothing was measured" in capsys.readouterr().err
