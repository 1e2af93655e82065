"""`lowlevel compare`: what counts as better, worse, broken; and files that may not be compared."""

import json
from dataclasses import replace

import pytest

from lowlevel import cli, regression
from lowlevel.results import Results, Row

ENVIRONMENT = {"gpu": "NVIDIA H200", "driver": "580.1", "cublas": "13.1.0", "date": "2026-01-01", "commit": "abcdef"}


def kernel(ratio=0.5, width=0.001, us=100.0, **more) -> Row:
    words = {"op": "gemm", "variant": "gemm/02_tiled", "language": "cuda", "config": "32x32x32", "arch": "sm_90",
             "dtype": "fp32", "layout": "NN", "m": 64, "n": 64, "k": 64, "status": "ok",
             "sm_clock_mhz": 1900}  # fmt: skip
    figures = {"median_us": us, "iqr_us": 0.1, "tflops": 1000 / us, "gb_per_s": 1.0, "vs_best_library": ratio,
               "ratio_low": ratio - width, "ratio_high": ratio + width}  # fmt: skip
    return Row(**{**words, **figures, **more})


def library(us=50.0, iqr=0.2, **more) -> Row:
    return kernel(
        1.0, 0.0, us, **{"variant": "library/cublas", "language": "library", "arch": "", "iqr_us": iqr, **more}
    )


def results(*rows, **environment) -> Results:
    return Results({**ENVIRONMENT, **environment}, {"suite": "main", "timer": "auto"}, list(rows))


def verdicts(a, b, **options) -> list[str]:
    return [c.verdict for c in regression.compare([results(*a)], [results(*b)], **options)]


def test_intervals_that_do_not_overlap_decide():
    (change,) = regression.compare([results(kernel(0.50, us=100))], [results(kernel(0.55, us=91))])
    assert (change.verdict, change.by) == ("better", "ratio")
    assert change.percent == pytest.approx(10.0)
    assert verdicts([kernel(0.50, us=100)], [kernel(0.45, us=111)]) == ["worse"]
    assert verdicts([kernel(0.50, 0.03, us=100)], [kernel(0.55, 0.03, us=91)]) == ["same"]


def test_a_change_below_the_least_is_none():
    a, b = [kernel(0.500, us=100)], [kernel(0.504, us=99.2)]
    assert verdicts(a, b) == ["same"]
    assert verdicts(a, b, least=0.5) == ["better"]


def test_a_library_that_gained_makes_no_kernel_worse():
    """The ratio fell, the time did not change."""
    assert verdicts([kernel(0.50, us=100)], [kernel(0.45, us=100)]) == ["same"]
    assert verdicts([kernel(0.50, us=100)], [kernel(0.45, us=95)]) == ["same"]


def test_a_clock_that_changed_makes_no_kernel_worse():
    """The time rose, the ratio did not change."""
    assert verdicts([kernel(0.50, us=100)], [kernel(0.50, us=120)]) == ["same"]


def test_a_library_is_judged_by_its_time():
    (change,) = regression.compare([results(library(50.0))], [results(library(40.0))])
    assert (change.verdict, change.by) == ("better", "time")
    assert change.percent == pytest.approx(25.0)
    assert verdicts([library(50.0)], [library(60.0)]) == ["worse"]
    assert verdicts([library(50.0, iqr=12.0)], [library(60.0, iqr=12.0)]) == ["same"]


def test_a_library_with_a_ratio_is_judged_by_its_time_too():
    """Its ratio is to another library, which may have changed."""
    slower = {"vs_best_library": 0.9, "ratio_low": 0.89, "ratio_high": 0.91}
    a, b = library(50.0, **slower), library(60.0, **slower)
    assert verdicts([a], [b]) == ["worse"]


def test_a_kernel_that_is_its_own_yardstick_is_judged_by_its_time():
    a, b = (kernel(1.0, 0.0, us=us, variant="copy/01") for us in (100.0, 120.0))
    assert verdicts([a], [b]) == ["worse"]


def test_a_library_is_the_same_row_whatever_algorithm_it_chose():
    assert verdicts([library(config="lt #1 of 8")], [library(config="lt #3 of 8")]) == ["same"]
    assert verdicts([kernel(config="32x32x32")], [kernel(config="64x64x32")]) == ["only in A", "only in B"]


@pytest.mark.parametrize(
    "change",
    [{"arch": "sm_80"}, {"dtype": "bf16"}, {"layout": "NT"}, {"epilogue": "bias"}, {"m": 65}, {"language": "ptx"}],
)
def test_rows_are_joined_by_all_that_was_measured(change):
    assert verdicts([kernel()], [kernel(**change)]) == ["only in A", "only in B"]


def test_rows_with_the_same_key_are_told_apart_by_their_order():
    a = [library(50.0), library(10.0)]
    assert verdicts(a, a) == ["same", "same"]


def test_status_changes():
    right, wrong, skipped = kernel(), kernel(status="wrong"), kernel(status="skipped")
    assert verdicts([right], [wrong]) == ["broken"]
    assert verdicts([wrong], [right]) == ["mended"]
    assert verdicts([right], [skipped]) == ["status"]
    assert verdicts([wrong], [kernel(status="hang")]) == ["broken"]
    assert verdicts([wrong], [wrong]) == ["same"]
    assert verdicts([], [wrong]) == ["broken"]
    assert verdicts([], [right]) == ["only in B"]
    probe = Row("probe", "probe/tensor_map", status="ok")
    assert verdicts([probe], [probe]) == ["same"]


def test_the_worst_news_comes_first():
    a = [kernel(0.5, us=100, m=m) for m in (1, 2, 3)]
    b = [kernel(0.6, us=83, m=1), kernel(0.4, us=125, m=2), kernel(status="wrong", m=3)]
    assert verdicts(a, b) == ["broken", "worse", "better"]


def test_earlier_runs_widen_the_interval():
    a, b = results(kernel(0.50, us=100)), results(kernel(0.55, us=91))
    noisy = results(kernel(0.56, us=90))
    assert [c.verdict for c in regression.compare([noisy, a], [b])] == ["same"]
    assert [c.verdict for c in regression.compare([a], [b])] == ["better"]


def test_earlier_runs_count_only_under_the_same_conditions(tmp_path):
    results(kernel(0.56), driver="570.0").save(tmp_path / "main.1.json")
    results(kernel(0.51)).save(tmp_path / "main.2.json")
    results(kernel(0.50)).save(tmp_path / "main.json")
    found = regression.with_earlier_runs(tmp_path / "main.json", tmp_path / "other.json")
    assert [r.rows[0].vs_best_library for r in found] == [0.51, 0.50]
    # a run is not its own earlier run
    found = regression.with_earlier_runs(tmp_path / "main.json", tmp_path / "main.2.json")
    assert [r.rows[0].vs_best_library for r in found] == [0.50]


def test_conditions_that_differ_are_said():
    a, b = results(kernel()), results(kernel(sm_clock_mhz=1500.0), driver="590.2", other_processes=["another"])
    b.protocol["timer"] = "cold"
    found = "\n".join(regression.differences(a, b))
    assert "driver: 580.1 in A, 590.2 in B" in found
    assert "timer: auto in A, cold in B" in found
    assert "median SM clock while measuring: 1900 MHz in A, 1500 MHz in B" in found
    assert "other processes on the GPU in B: another" in found
    assert regression.differences(a, replace(a)) == []


@pytest.fixture
def files(tmp_path):
    """save(a, b) -> their paths."""

    def save(a: Results, b: Results) -> list[str]:
        paths = [tmp_path / "a.json", tmp_path / "b.json"]
        a.save(paths[0])
        b.save(paths[1])
        return list(map(str, paths))

    return save


def test_the_exit_code_is_1_when_something_is_worse_or_wrong(files, capsys):
    for row, code in ((kernel(), 0), (kernel(0.6, us=83), 0), (kernel(0.4, us=125), 1), (kernel(status="wrong"), 1)):
        assert cli.main(["compare", *files(results(kernel()), results(row))]) == code
    capsys.readouterr()


def test_the_table_says_what_changed_by_how_much(files, capsys):
    pair = files(results(kernel(), library()), results(kernel(0.4, us=125), library(), gpu="NVIDIA H100"))
    cli.main(["compare", *pair])
    out = capsys.readouterr().out
    assert out.index("NOT MEASURED UNDER THE SAME CONDITIONS") < out.index("gemm/02_tiled")
    assert "gpu: NVIDIA H200 in A, NVIDIA H100 in B" in out
    assert "-20.0 %" in out
    assert out.rstrip().endswith("1 worse, 1 same")
    assert "library/cublas" not in out
    cli.main(["compare", *pair, "--all", "--markdown"])
    out = capsys.readouterr().out
    assert "| worse" in out
    assert "library/cublas" in out


def test_json_has_numbers(files, capsys):
    cli.main(["compare", *files(results(kernel()), results(kernel(0.4, us=125))), "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["counts"] == {"worse": 1}
    assert found["differences"] == []
    assert found["rows"][0]["percent"] == pytest.approx(-20)
    assert found["rows"][0]["median_us"] == [100, 125]
    assert found["rows"][0]["m"] == 64


def test_files_that_cannot_be_compared_are_refused(files, tmp_path, capsys):
    a, b = files(results(kernel()), results(kernel()))
    data = json.loads((tmp_path / "b.json").read_text())
    (tmp_path / "b.json").write_text(json.dumps({**data, "schema": 99}))
    assert cli.main(["compare", a, b]) == 2
    assert "has schema 99, this version reads 1" in capsys.readouterr().err
    assert cli.main(["compare", *files(results(kernel()), results(library()))]) == 2
    assert "have no row in common" in capsys.readouterr().err
    assert cli.main(["compare", a, str(tmp_path / "none.json")]) == 2
    assert "cannot read" in capsys.readouterr().err
