"""The committed H200 figures beside rows of another GPU, and what `lowlevel bench` shows meanwhile."""

import io
import sys

import pytest

from lowlevel import bench, progress, reference, report
from lowlevel.dtypes import FP32
from lowlevel.problems.gemm import Gemm
from lowlevel.results import Results, Row

SHAPE = {"op": "gemm", "dtype": "fp32", "layout": "NN", "m": 64, "n": 64, "k": 64, "status": "ok", "median_us": 2.0}
OURS = Row(variant="gemm/02_tiled", language="cuda", config="32x32x32", tflops=8.3, gb_per_s=1.0, arch="sm_90", **SHAPE)
CUBLAS = Row(variant="library/cublas", language="library", config="sgemm", tflops=51.4, gb_per_s=1.0, **SHAPE)


def saved(root, name, *rows, gpu="NVIDIA H200"):
    Results({"gpu": gpu}, {}, list(rows)).save(root / "h200" / f"{name}.json")


def elsewhere(**changed) -> Row:
    return Row(**{**vars(OURS), "arch": "sm_80", "tflops": 4.0, **changed})


def test_the_same_row_elsewhere_has_the_committed_figure(tmp_path):
    saved(tmp_path, "main", OURS, CUBLAS)
    beside = reference.column("NVIDIA A100-SXM4-80GB", tmp_path)
    assert beside.heading == "on NVIDIA H200"
    assert beside.text(elsewhere()) == "8.3 TFLOP/s"
    assert beside.text(Row(**{**vars(CUBLAS), "config": "another"})) == "51.4 TFLOP/s"
    for changed in ({"config": "64x64x32"}, {"dtype": "bf16"}, {"layout": "NT"}, {"m": 65}, {"language": "ptx"}):
        assert beside.text(elsewhere(**changed)) is None
    text = report.table([elsewhere(), elsewhere(m=65)], beside=beside)
    assert text.splitlines()[0].index("on NVIDIA H200") > text.splitlines()[0].index("TFLOP/s")
    assert text.count("8.3 TFLOP/s") == 1


def test_without_any_such_row_there_is_no_column(tmp_path):
    saved(tmp_path, "main", OURS)
    beside = reference.column("NVIDIA A100-SXM4-80GB", tmp_path)
    assert "H200" not in report.table([elsewhere(m=65)], beside=beside)


def test_on_the_gpu_itself_or_without_files_there_is_no_column(tmp_path):
    assert reference.column("NVIDIA A100-SXM4-80GB", tmp_path) is None
    saved(tmp_path, "main", OURS)
    assert reference.column("NVIDIA H200", tmp_path) is None
    (tmp_path / "h200" / "main.json").write_text("{")
    assert reference.column("NVIDIA A100-SXM4-80GB", tmp_path) is None


def test_the_main_file_counts_first_and_earlier_runs_never(tmp_path):
    saved(tmp_path, "launch", Row(**{**vars(OURS), "tflops": 1.0}))
    saved(tmp_path, "main", OURS)
    saved(tmp_path, "main.1", Row(**{**vars(OURS), "m": 128, "n": 128, "k": 128}))
    saved(tmp_path, "main.partial", Row(**{**vars(OURS), "m": 256, "n": 256, "k": 256}))
    beside = reference.column("another", tmp_path)
    assert beside.text(OURS) == "8.3 TFLOP/s"
    assert beside.text(elsewhere(m=128, n=128, k=128)) is None
    assert beside.text(elsewhere(m=256, n=256, k=256)) is None


def test_rows_that_are_wrong_or_moved_other_amounts_have_no_figure():
    move = Row("transpose", "copy/01", status="ok", m=8, n=8, median_us=1.0, gb_per_s=100.0)
    half = Row("transpose", "copy/01", status="ok", m=8, n=8, median_us=1.0, gb_per_s=50.0)
    assert list(reference.by_identity([move]).values()) == ["100 GB/s"]
    assert reference.by_identity([move, half]) == {}
    assert reference.by_identity([Row(**{**vars(OURS), "status": "wrong"})]) == {}


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def test_the_time_left_is_the_budget_and_what_rows_cost_besides():
    clock = Clock()
    left = progress.TimeLeft(10, 80.0, clock)
    assert left() is None
    clock.now = 30.0
    left.timed(20.0)
    left.finished(2)
    # 60 s of the budget, and 5 s besides for each of 8 rows
    assert left() == pytest.approx(60 + 8 * 5)
    left.timed(100.0)
    left.finished(8)
    assert (left(), left.budget_left) == (0.0, 0.0)


def test_times_are_said_as_roughly_as_they_are_known():
    assert progress.left_text(None) == "time left unknown"
    assert progress.left_text(1) == "about 5 s left"
    assert progress.left_text(47) == "about 45 s left"
    assert progress.left_text(200) == "about 3 min left"


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("stream", [Terminal, io.StringIO])
def test_the_line_is_for_terminals_only(monkeypatch, stream):
    out = stream()
    monkeypatch.setattr(sys, "stderr", out)
    with progress.RowProgress(61, "measuring", lambda: 47.0) as line:
        line.advance(12)
        line.show("timing gemm/02_tiled (cuda), 4096x4096x4096 fp32 NN")
    if stream is Terminal:
        assert "measuring 12/61 rows" in out.getvalue()
        assert "about 45 s left: timing gemm/02_tiled" in out.getvalue()
    else:
        assert out.getvalue() == ""


def test_words_of_the_line_and_of_the_first_screen():
    problem = Gemm(64, 48, 32, FP32, "NN")
    assert bench.row_text(OURS, problem) == "gemm/02_tiled (cuda), 64x48x32 fp32 NN"
    assert bench.row_text(CUBLAS, problem) == "library/cublas, 64x48x32 fp32 NN"
    assert bench.power_text({"power_limit_w": 500.0, "power_default_w": 700.0}) == "power limit 500 W (default 700 W)"
    assert bench.power_text({"power_limit_w": 700.0, "power_default_w": 700.0}) == "power limit 700 W"
    assert bench.power_text({"power_limit_w": None}) == "power limit ?"
    assert bench.company_text(None) == "unknown, NVML does not say"
    assert bench.company_text([]) == "none"
