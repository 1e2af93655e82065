"""Results files and the tables made of them."""

import json
import math

import pytest

from lowlevel import catalog, paths, report
from lowlevel.errors import UsageError
from lowlevel.results import SCHEMA, STATUSES, Results, Row, check_writable, keep_previous, runs


def rows() -> list[Row]:
    shape = {"op": "gemm", "dtype": "fp32", "layout": "NN", "m": 4, "n": 4, "k": 4, "status": "ok"}
    library = Row(variant="library/cublas", language="library", median_us=1.0, tflops=50.0, vs_cublas=1.0, **shape)
    own = Row(
        variant="gemm/02_tiled", language="cuda", arch="sm_90", median_us=5.0, tflops=10.0, vs_cublas=0.2, **shape
    )
    own.vs_best_library, own.ratio_low, own.ratio_high = 0.19, 0.188, 0.192
    own.max_error, own.error_bound = 1e-6, 2e-6
    return [own, library, Row(op="probe", variant="probe/tensor_map", language="cuda", status="ok")]


def saved(tmp_path, name="rows.json") -> Results:
    path = tmp_path / name
    Results({"gpu": "NVIDIA H200", "date": "2026-01-01T00:00"}, {"suite": "main"}, rows()).save(path)
    return Results.load(path)


def test_what_is_saved_is_loaded(tmp_path):
    assert saved(tmp_path).rows == rows()
    data = json.loads((tmp_path / "rows.json").read_text())
    assert data["schema"] == SCHEMA
    assert data["rows"][2]["median_us"] is None


def test_a_figure_that_is_not_a_number_is_not_written(tmp_path):
    bad = rows()
    bad[0].tflops = math.nan
    path = tmp_path / "rows.json"
    path.write_text("before")
    with pytest.raises(ValueError, match="not JSON compliant"):
        Results({}, {}, bad).save(path)
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(UsageError, match="cannot read"):
        Results.load(tmp_path / "none.json")
    path = tmp_path / "x.json"
    path.write_text("{")
    with pytest.raises(UsageError, match="is not a results file"):
        Results.load(path)
    path.write_text('{"schema": 99}')
    with pytest.raises(UsageError, match="has schema 99, this version reads 1"):
        Results.load(path)


def test_places_that_cannot_be_written(tmp_path):
    check_writable(tmp_path / "new" / "rows.json")
    assert list((tmp_path / "new").iterdir()) == []
    with pytest.raises(UsageError, match="it is a folder"):
        check_writable(tmp_path)


def test_the_last_three_runs_are_kept_in_order(tmp_path):
    path = tmp_path / "suite.json"
    for number in range(5):
        keep_previous(path)
        path.write_text(str(number))
    assert [p.read_text() for p in runs(path)] == ["2", "3", "4"]
    assert runs(path)[-1] == path


def test_a_table_has_only_the_columns_that_some_row_fills():
    text = report.table(rows()[:2])
    assert "x best library" in text
    assert "0.190 [0.188, 0.192]" in text
    assert "1.0e-06 / 2.0e-06" in text
    assert "GB/s" not in text
    assert "held back by" not in text


def test_rows_that_failed_say_why_in_the_table():
    bad = rows()[0]
    bad.status, bad.reason = "hang", "no answer in 90 s; killed"
    assert "hang: no answer in 90 s; killed" in report.table([bad])
    assert "hang" in STATUSES


def test_tables_by_shape_and_probes_apart():
    text = report.tables(rows())
    assert "gemm 4 x 4 x 4, fp32, NN" in text
    assert text.index("Probes of the launch layer") > text.index("gemm/02_tiled")
    assert report.tables(rows(), markdown=True).startswith("#### gemm")


def test_markers_are_filled_and_filled_again(tmp_path):
    results = {"h200/main": saved(tmp_path)}
    text = "a\n<!-- lowlevel:table h200/main ladder -->\nold\n<!-- /lowlevel:table -->\nb\n"
    once = report.update_markers(text, results)
    assert "10.0 (0.20)" in once
    assert "old" not in once
    assert once.startswith("a\n<!-- lowlevel")
    assert once.endswith("<!-- /lowlevel:table -->\nb\n")
    assert report.update_markers(once, results) == once


def test_the_ladder_is_the_catalog():
    """So that a new kernel needs no line of its own in the README."""
    text = report.update_markers("<!-- lowlevel:ladder -->\nold\n<!-- /lowlevel:ladder -->\n", {})
    assert "\nold\n" not in text
    for kernel in catalog.kernels():
        assert (f"]({kernel.path})" in text) == (kernel.operation != "probe")
        assert kernel.operation == "probe" or catalog.idea(kernel) in text
    assert "<!-- lowlevel:ladder -->" in (paths.kernel_root() / "README.md").read_text()


def test_markers_that_ask_for_nothing_known(tmp_path):
    results = {"h200/main": saved(tmp_path)}
    for marker, said in (("h200/none ladder", "h200/none.json, which does not exist"), ("h200/main x", "view 'x'")):
        text = f"<!-- lowlevel:table {marker} -->\n<!-- /lowlevel:table -->"
        with pytest.raises(UsageError, match=said):
            report.update_markers(text, results)


def test_the_readme_shows_what_the_committed_files_say():
    readme = paths.kernel_root() / "README.md"
    text = readme.read_text()
    assert "lowlevel:table" in text
    assert report.update_markers(text, report.committed(paths.results_root())) == text, "run `lowlevel report`"


def test_committed_results_have_an_environment_and_known_words():
    found = report.committed(paths.results_root())
    assert found
    for name, results in found.items():
        assert results.environment["gpu"], name
        for row in results.rows:
            assert row.status in STATUSES
            assert row.repro


def test_agreement_of_runs(tmp_path):
    path = tmp_path / "suite.json"
    for ratio in (0.20, 0.21, 0.20):
        keep_previous(path)
        changed = rows()
        changed[0].vs_cublas = ratio
        Results({}, {}, changed).save(path)
    worst, spread, ratios = report.agreement(path)[0]
    assert "gemm/02_tiled" in worst
    assert spread == pytest.approx(0.05)
    assert ratios == [0.20, 0.21, 0.20]


def test_products_state_the_share_of_the_ceiling():
    shape = {"op": "gemm", "layout": "NT", "m": 4, "n": 4, "k": 4, "status": "ok", "median_us": 1.0}
    listed = [
        Row(variant="gemm/14", language="cuda", dtype="bf16", accumulate="fp32", config="4x4", tflops=30.0, **shape),
        Row(variant="gemm/14", language="cuda", dtype="fp16", accumulate="fp16", tflops=40.0, **shape),
        Row(variant="gemm/14", language="cuda", dtype="tf32", accumulate="fp32", tflops=10.0, **shape),
        Row(variant="library/cublas", language="library", dtype="bf16", accumulate="fp32", tflops=50.0, **shape),
        Row(variant="library/cublaslt", language="library", dtype="bf16", accumulate="fp32", tflops=55.0, **shape),
        Row(variant="library/cublas", language="library", dtype="fp16", accumulate="fp32", tflops=70.0, **shape),
        *(Row(op="probe", variant="probe/mma_ceiling", dtype=d, tflops=60.0, status="ok") for d in ("bf16", "fp16")),
    ]
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in report.products(listed).splitlines()[2:]]
    assert [line[-1] for line in lines] == ["0.50", "", ""]  # fp16 sums and tf32 have another ceiling
    assert [line[5] for line in lines] == ["4x4", "", ""]
    assert lines[1][1] == "fp16, fp16 sums"
    assert [line[-3:-1] for line in lines] == [["50.0", "55.0"], ["", ""], ["", ""]]  # of the same type alone
    assert "ceiling" not in report.products(listed[:-2])  # no probe, no column for it


def test_ahead_counts_a_shape_to_a_limit_and_large_ones_apart():
    def row(side, ratio, chosen="tuned (exact)", config="PDL=1", high=None):
        names = {"op": "gemm", "variant": "gemm/25", "language": "cuda", "dtype": "bf16", "layout": "NT"}
        return Row(**names, m=side, n=side, k=side, config=config, chosen_by=chosen, status="ok", median_us=1.0,
                   vs_best_library=ratio, ratio_low=0.9, ratio_high=high or ratio)  # fmt: skip

    listed = [row(512, 2.0), row(512, 1.0, "named", "PDL=0"), row(2048, 1.0), row(4096, 1.21, config="PDL=0")]
    listed += [row(4095, 5.0), row(8192, 0.99)]  # broken rows; all of its interval below 1
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in report.ahead(listed).splitlines()[2:]]
    assert [line[4:] for line in lines] == [
        ["as chosen", "4", f"{(1.15 * 1.15 * 0.99) ** 0.25:.3f} (4)", f"{(1.21 * 0.99) ** (1 / 3):.3f} (3)", "8192"],
        ["no programmatic launch", "4", f"{(1.15 * 0.99) ** 0.25:.3f} (4)", f"{(1.21 * 0.99) ** (1 / 3):.3f} (3)",
         "8192"],
    ]  # fmt: skip
    assert "none" in report.ahead([row(64, 0.99, high=1.01)])


def test_launches_put_what_is_launched_plainly_beside_it():
    def row(variant, ratio, config="", chosen="rule", language="cuda"):
        names = {"op": "gemm", "variant": variant, "language": language, "dtype": "bf16", "layout": "NT"}
        return Row(**names, m=64, n=64, k=64, config=config, chosen_by=chosen, status="ok", median_us=2.0,
                   tflops=30.0 * ratio, vs_best_library=ratio, ratio_low=ratio, ratio_high=ratio)  # fmt: skip

    listed = [row("gemm/25", 1.1, "s8,PDL=1"), row("gemm/25", 0.9, "s8,PDL=0", "named"), row("gemm/27", 0.8, "PDL=0")]
    listed += [row("library/cublas", 1.0, language="library"), row("library/cublaslt", 0.5, language="library")]
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in report.launches(listed).splitlines()[2:]]
    assert [line[3:] for line in lines] == [
        ["gemm/25", "2.0", "33.0", "30.0", "1.100 [1.100, 1.100]", "programmatically", "0.900 [0.900, 0.900]"],
        ["gemm/27", "2.0", "24.0", "30.0", "0.800 [0.800, 0.800]", "plainly", ""],
    ]
