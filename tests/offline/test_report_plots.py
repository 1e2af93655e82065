"""`lowlevel report`: the README's tables, and plots that are right, complete and the same each time."""

import builtins
import json
from dataclasses import replace

import pytest

from lowlevel import cli, hardware, paths, plots, report
from lowlevel.errors import MissingError, UsageError
from lowlevel.results import Results, Row

pytest.importorskip("matplotlib")

H200 = {
    "gpu": "NVIDIA H200", "arch": "sm_90", "sms": 132, "sm_clock_max_mhz": 1980, "memory_clock_max_mhz": 3201,
    "driver": "580.1", "cuda_driver": "13.0", "cublas": "13.1.0", "nvrtc": "NVRTC 13.0", "date": "2026-01-01T00:00",
}  # fmt: skip


def row(variant, language, tflops, m=4096, dtype="fp32", **more) -> Row:
    """A cube's row; each operand of four bytes read or written once."""
    flops, moved = 2 * m**3, 3 * 4 * m**2
    micro = flops / tflops / 1e6
    shape = {"m": m, "n": m, "k": m, "dtype": dtype, "layout": "NN", "op": "gemm", "status": "ok"}
    times = {"median_us": micro, "tflops": tflops, "gb_per_s": moved / micro / 1e3}
    return Row(variant=variant, language=language, **{**shape, **times, **more})


def results(rows=None) -> Results:
    rows = rows or [
        row("gemm/01_naive", "cuda", 5.0),
        row("gemm/01_naive", "ptx", 4.0),
        row("gemm/02_tiled", "cuda", 9.0),
        row("gemm/02_tiled", "cuda", 8.0, m=1024),
        row("library/cublas", "library", 51.4),
        row("library/cublaslt", "library", 600.0, dtype="bf16"),
        Row(op="probe", variant="probe/tensor_map", language="cuda", status="ok"),
    ]
    return Results(dict(H200), {"suite": "main"}, rows)


def texts(figure) -> str:
    found = []
    for axes in figure.axes:
        found += [axes.get_title(loc="left"), axes.get_xlabel(), axes.get_ylabel()]
        found += [t.get_text() for t in [*axes.texts, *axes.get_xticklabels()]]
    found += [t.get_text() for t in figure.texts]
    found += [t.get_text() for legend in figure.legends for t in legend.get_texts()]
    return "\n".join([*found, figure._suptitle.get_text() if figure._suptitle else ""])


def test_the_roofs_are_those_of_the_hardware():
    limits = plots.limits_of(H200)
    assert hardware.bandwidth(limits) == hardware.bandwidth(hardware.GPUS["H200"])
    roofs = plots.peaks(results().rows, limits)
    assert list(roofs) == pytest.approx([66.9, 1070.5], abs=0.1)
    assert list(roofs.values()) == [["fp32"], ["bf16"]]
    both = plots.peaks([Row("gemm", "x", dtype="fp16"), Row("gemm", "x", dtype="bf16")], limits)
    assert list(both.values()) == [["fp16", "bf16"]]


def test_the_gpu_is_the_one_that_the_file_names():
    slow = plots.limits_of({**H200, "sms": 66, "memory_bus_bits": 3008, "gpu": "NVIDIA Unheard-of"})
    assert hardware.peak(slow, "fp32") == hardware.peak(hardware.GPUS["H200"], "fp32") / 2
    assert hardware.bandwidth(slow) == hardware.bandwidth(hardware.GPUS["H200"]) / 2
    with pytest.raises(UsageError, match="no GPU 'NVIDIA Unheard-of'"):
        plots.limits_of({**H200, "gpu": "NVIDIA Unheard-of"})


def test_intensity_is_flop_over_the_fewest_bytes():
    assert plots.intensity(row("x", "cuda", 5.0)) == pytest.approx(4096 / 6)
    assert plots.intensity(Row("copy", "x", gb_per_s=4000.0)) is None


def test_the_roofline_has_a_point_for_each_right_row():
    wrong = row("gemm/02_tiled", "ptx", 7.0, status="wrong")
    figure = plots.roofline(results([*results().rows, wrong]))
    points = [line for line in figure.axes[0].lines if line.get_marker() not in ("None", "")]
    assert sorted(p.get_ydata()[0] for p in points) == [4.0, 5.0, 8.0, 9.0, 51.4, 600.0]
    assert {p.get_marker() for p in points} == {"o", "s", "D"}
    said = texts(figure)
    for word in ("NVIDIA H200", "driver 580.1", "cuBLAS 13.1.0", "2026-01-01", "fp32 peak 67", "4814 GB/s", "PTX"):
        assert word in said, word
    assert "01 naive, fp32" in said


def test_without_flop_there_is_no_roofline():
    with pytest.raises(UsageError, match="no roofline"):
        plots.roofline(results([Row("copy", "copy/01", status="ok", gb_per_s=4000.0, median_us=1.0)]))


def test_labels_keep_their_distance_and_their_order():
    assert plots.spread([0.5, 0.5, 0.1], 0.1, 0.0, 1.0) == pytest.approx([0.5, 0.6, 0.1])
    assert plots.spread([0.99, 0.98], 0.1, 0.0, 1.0) == pytest.approx([1.0, 0.9])
    assert plots.spread([], 0.1, 0.0, 1.0) == []


def test_the_ladder_has_languages_side_by_side_and_the_library_as_a_line():
    (panel,) = plots.panels(results().rows)
    assert (panel.title, panel.unit) == ("gemm 4096, fp32, NN", "TFLOP/s")
    assert (panel.rungs, panel.languages) == (("gemm/01_naive", "gemm/02_tiled"), ("cuda", "ptx"))
    assert panel.baseline.variant == "library/cublas"
    figure = plots.ladder(results())
    bars = {(round(b.get_x() + b.get_width() / 2, 2), b.get_height()) for b in figure.axes[0].patches}
    assert bars == {(-0.2, 5.0), (0.2, 4.0), (0.8, 9.0)}
    assert any(list(line.get_ydata()) == [51.4, 51.4] for line in figure.axes[0].lines)
    for word in ("cuBLAS 51.4", "01 naive", "CUDA C++", "The ladder on NVIDIA H200", "driver 580.1", "TFLOP/s"):
        assert word in texts(figure), word


def test_a_rung_that_is_wrong_says_so_in_place_of_its_bar():
    bad = replace(row("gemm/03_x", "ptx", 1.0), status="wrong", tflops=None, gb_per_s=None)
    figure = plots.ladder(results([*results().rows, bad]))
    assert "wrong" in texts(figure)
    assert len(figure.axes[0].patches) == 3


def test_of_several_configurations_the_fastest_right_one_stands():
    rows = [row("gemm/14_wide", "cuda", t, config=c, status=s) for t, c, s in
            ((5.0, "a", "ok"), (9.0, "b", "implausible"), (7.0, "c", "ok"))]  # fmt: skip
    (panel,) = plots.panels(rows)
    assert panel.bars["gemm/14_wide", "cuda"].config == "c"


def test_shapes_of_the_ladder():
    rows = results().rows
    assert [p.title for p in plots.panels(rows, "all")] == ["gemm 4096, fp32, NN", "gemm 1024, fp32, NN"]
    assert [p.title for p in plots.panels(rows, "1024")] == ["gemm 1024, fp32, NN"]
    with pytest.raises(UsageError, match="no row has shape '77'; there are: 4096, 1024, or all"):
        plots.panels(rows, "77")
    with pytest.raises(UsageError, match="no ladder to draw"):
        plots.panels([row("library/cublas", "library", 51.0)])


def test_moves_have_a_panel_in_gb_per_s():
    shape = {"op": "transpose", "dtype": "fp32", "m": 4096, "n": 4096, "status": "ok", "median_us": 1.0}
    rows = [
        Row(variant="transpose/01_naive", language="cuda", gb_per_s=500.0, **shape),
        Row(variant="copy/01_vectorised", language="cuda", gb_per_s=3700.0, **shape),
        Row(variant="library/copy", language="library", gb_per_s=4000.0, **shape),
    ]
    (panel,) = plots.panels(rows)
    assert (panel.unit, panel.rungs, panel.baseline.gb_per_s) == ("GB/s", ("transpose/01_naive",), 4000.0)


def test_the_same_rows_give_the_same_svg(tmp_path):
    for name in ("a", "b"):
        for draw in (plots.roofline, plots.ladder):
            plots.save(draw(results()), tmp_path / name / draw.__name__, ("svg",))
    for draw in ("roofline.svg", "ladder.svg"):
        first, second = ((tmp_path / name / draw).read_bytes() for name in ("a", "b"))
        assert first == second
        assert b"<dc:date>" not in first


def test_plots_are_written_beside_the_file_or_where_asked(tmp_path, capsys):
    path = tmp_path / "main.json"
    results().save(path)
    assert cli.main(["report", str(path)]) == 0
    assert {p.name for p in tmp_path.iterdir()} == {
        "main.json", "main.roofline.png", "main.roofline.svg", "main.ladder.png", "main.ladder.svg",
    }  # fmt: skip
    assert (tmp_path / "main.ladder.png").read_bytes().startswith(b"\x89PNG")
    out = tmp_path / "new" / "folder"
    assert cli.main(["report", str(path), "--out", str(out), "--plot", "ladder", "--format", "svg"]) == 0
    assert [p.name for p in out.iterdir()] == ["main.ladder.svg"]
    assert str(out / "main.ladder.svg") in capsys.readouterr().out


def test_a_shape_that_was_asked_for_and_is_not_there_is_a_failure(tmp_path, capsys):
    path = tmp_path / "run.json"
    results().save(path)
    assert cli.main(["report", str(path), "--format", "svg", "--shape", "77"]) == 1
    captured = capsys.readouterr()
    assert captured.out == f"{tmp_path / 'run.roofline.svg'}\n"
    assert "no row has shape '77'" in captured.err


def test_a_file_without_flop_has_its_ladder_still(tmp_path, capsys):
    path = tmp_path / "moves.json"
    move = Row("copy", "copy/01_vectorised", language="cuda", status="ok", gb_per_s=9.0, median_us=1.0, m=8, n=8)
    results([move]).save(path)
    assert cli.main(["report", str(path), "--format", "svg"]) == 0
    assert "no roofline" in capsys.readouterr().err
    assert (tmp_path / "moves.ladder.svg").exists()
    assert cli.main(["report", str(path), "--plot", "roofline"]) == 1


def test_matplotlib_missing_is_one_line_that_names_the_extra(tmp_path, monkeypatch, capsys):
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    path = tmp_path / "main.json"
    results().save(path)
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingError, match="pip install matplotlib"):
        plots.figure_class()
    assert cli.main(["report", str(path)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_wrong_words_are_one_line(tmp_path, capsys):
    for words, said in {
        ("--plot", "pie"): "no plot 'pie'; there are: roofline, ladder",
        ("--format", "gif"): "no format 'gif'; there are: png, svg",
        ("--check", str(tmp_path / "x.json")): "--check looks at the README's tables",
        (str(tmp_path / "none.json"),): "cannot read",
    }.items():
        assert cli.main(["report", *words]) == 2
        assert said in capsys.readouterr().err


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A README with one marker, and the results that it asks for."""
    results().save(tmp_path / "bench" / "results" / "h200" / "main.json")
    readme = tmp_path / "README.md"
    readme.write_text("x\n<!-- lowlevel:table h200/main ladder -->\nold\n<!-- /lowlevel:table -->\n")
    monkeypatch.setattr(paths, "kernel_root", lambda: tmp_path)
    monkeypatch.setattr(paths, "results_root", lambda: tmp_path / "bench" / "results")
    return readme


def test_check_finds_a_readme_that_drifted_and_leaves_it(checkout, capsys):
    before = checkout.read_text()
    assert cli.main(["report", "--check"]) == 1
    assert "run `lowlevel report`" in capsys.readouterr().err
    assert checkout.read_text() == before
    assert cli.main(["report"]) == 0
    assert "gemm/02_tiled" in checkout.read_text()
    assert cli.main(["report", "--check"]) == 0
    checkout.write_text(before)
    report.main()  # `python -m lowlevel.report` does the same
    assert cli.main(["report", "--check"]) == 0


def test_outside_a_checkout_there_is_no_readme(checkout, capsys):
    checkout.unlink()
    assert cli.main(["report"]) == 2
    assert "no README here" in capsys.readouterr().err


def test_every_committed_file_can_be_drawn():
    for name, found in report.committed(paths.results_root()).items():
        if any(plots.intensity(r) for r in found.rows):
            assert plots.roofline(found).axes, name
        if any(r.language in plots.LANGUAGE_COLOURS and r.op != "probe" for r in found.rows):
            assert plots.ladder(found).axes, name


def test_files_that_hold_something_else_are_one_line(tmp_path, capsys):
    for data in ([], {"schema": 1}, {"schema": 1, "environment": {}, "protocol": {}, "rows": [{"colour": 1}]}):
        path = tmp_path / "x.json"
        path.write_text(json.dumps(data))
        assert cli.main(["report", str(path)]) == 2
        err = capsys.readouterr().err
        assert "is not a results file" in err
        assert len(err.splitlines()) == 1
