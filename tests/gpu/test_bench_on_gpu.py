"""The bench end to end on the GPU; kernels that hang, fault or are wrong cost their own rows."""

import io

import pytest

from lowlevel import catalog, paths
from lowlevel.bench import BenchOptions, run_bench
from lowlevel.device.cuda.driver import probe
from lowlevel.results import Results

pytestmark = pytest.mark.skipif(bool(probe()), reason=str(probe()))


def bench(tmp_path, **options):
    path = tmp_path / "rows.json"
    code = run_bench(BenchOptions(json_path=path, budget=2.0, **options), io.StringIO())
    return code, Results.load(path).rows


def test_a_small_ladder(tmp_path):
    code, rows = bench(tmp_path, patterns=("gemm/0*",), shapes="512")
    assert code == 0, [(r.variant, r.reason) for r in rows]
    assert {r.status for r in rows} == {"ok"}
    for row in rows:
        assert row.median_us > 0
        assert row.timer in ("graph", "events")
        assert row.vs_cublas > 0
        assert row.ratio_low <= row.vs_best_library <= row.ratio_high


@pytest.mark.parametrize("timer", ["graph", "events", "cold"])
def test_every_timer(tmp_path, timer):
    code, rows = bench(tmp_path, patterns=("cuda:gemm/02_tiled",), shapes="256x300x200", timer=timer)
    assert code == 0
    assert {r.timer for r in rows} == {timer}


def test_an_older_architecture_runs_through_its_ptx(tmp_path):
    code, rows = bench(tmp_path, patterns=("cuda:gemm/02_tiled",), shapes="300", arch="sm_80")
    assert code == 0
    assert next(r for r in rows if r.language == "cuda").arch == "sm_80"


def test_three_processes_in_turn(tmp_path):
    """One that is compared whole, and one that takes the first process's reference and the library's algorithm."""
    code, rows = bench(
        tmp_path, patterns=("cuda:gemm/12_swizzle",), shapes="512,3072", dtypes=("bf16",), layouts=("NT",), processes=3
    )
    assert code == 0, [(r.variant, r.reason) for r in rows]
    for row in rows:
        assert row.samples >= 9
        assert row.ratio_low <= row.vs_best_library <= row.ratio_high
        assert "/" not in row.config


SPOILED = {
    "hang": ("acc += As[y][k] * Bs[k][x];", "while (clock64()) acc += As[y][k] * Bs[k][x];"),
    "failed": ("C[(long long)m * ldc + n] = acc;", "C[(1ll << 40) + n] = acc;"),
    "wrong": ("__syncthreads();  // everyone is done", "acc += 1.0f;  //"),
}


@pytest.mark.parametrize("status", SPOILED)
def test_a_spoiled_kernel_costs_its_row(tmp_path, monkeypatch, status):
    """02 with one line changed: it loops for ever, writes far outside, or computes something else."""
    old, new = SPOILED[status]
    (tmp_path / "cu" / "gemm").mkdir(parents=True)
    text = (paths.kernel_root() / "cu/gemm/02_tiled.cu").read_text()
    assert old in text
    (tmp_path / "cu/gemm/02_tiled.cu").write_text(text.replace(old, new))
    naive = paths.kernel_root() / "cu/gemm/01_naive.cu"
    (tmp_path / "cu/gemm/01_naive.cu").write_text(naive.read_text())
    monkeypatch.setattr(catalog.paths, "kernel_root", lambda: tmp_path)
    monkeypatch.setattr("lowlevel.bench.VERIFY_DEADLINE_S", 20.0)
    code, rows = bench(tmp_path, patterns=("cuda:gemm/0*",), shapes="256")
    found = {(r.variant, r.language): r for r in rows}
    assert code == 1
    assert found["gemm/02_tiled", "cuda"].status == status, found["gemm/02_tiled", "cuda"].reason
    assert found["gemm/01_naive", "cuda"].status == "ok"
    assert found["library/cublas", "library"].status == "ok"


def test_a_deadlock_costs_its_row(tmp_path, monkeypatch, limits):
    """22 whose `empty` barriers wait for one warp more than there is: its producer waits for ever, and is ended."""
    if limits.capability != (9, 0):
        pytest.skip(f"22 needs sm_90, {limits.name} is {limits.arch}")
    kernel, count = "cuda:gemm/22_warp_specialised", "mbarrier_init(shared.empty(s), 4 * CONSUMERS);"
    text = (paths.kernel_root() / "cu/gemm/22_warp_specialised.cu").read_text()
    assert count in text
    copy = tmp_path / "deadlock.cu"
    copy.write_text(text.replace(count, "mbarrier_init(shared.empty(s), 4 * CONSUMERS + 1);"))
    monkeypatch.setattr("lowlevel.bench.VERIFY_DEADLINE_S", 20.0)
    patterns = (f"{copy} as {kernel}", kernel)
    code, rows = bench(tmp_path, patterns=patterns, shapes="512x512x4096", dtypes=("bf16",), layouts=("NT",))
    found = {r.variant: (r.status, r.reason) for r in rows}
    assert code == 1
    assert found.pop(next(name for name in found if "deadlock" in name))[0] == "hang"
    assert {status for status, _ in found.values()} == {"ok"}, found
    assert {"gemm/22_warp_specialised", "library/cublas"} <= set(found)
