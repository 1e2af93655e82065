"""Seeded shapes, their suite, and the means that compare it with the suite whose shapes were chosen."""

import io

import pytest
from test_bench import gpu  # noqa: F401

from lowlevel import bench, paths, report, suite
from lowlevel.bench import BenchOptions, run_bench
from lowlevel.errors import UsageError
from lowlevel.problems.gemm import Gemm
from lowlevel.problems.shapes import SEEDED_FLOPS, seeded_shapes
from lowlevel.results import Results, Row

NAME = "gemm-ampere-seeded"
SEEDED = ("main-seeded", NAME, "gemm-hopper-seeded")


def test_seeded_shapes_are_the_same_for_a_seed():
    assert seeded_shapes(20, 7) == seeded_shapes(20, 7)
    assert seeded_shapes(5, 7) == seeded_shapes(20, 7)[:5]
    assert seeded_shapes(5, 8) != seeded_shapes(5, 7)
    assert seeded_shapes(2, 7) == [(768, 448, 3008), (320, 1664, 768)]


def test_seeded_shapes_keep_to_their_bounds():
    shapes = seeded_shapes(400, 1)
    assert len(set(shapes)) == 400
    for index, (m, n, k) in enumerate(shapes):
        unit = (64, 64, 8, 1)[index % 4]
        assert m % unit == n % unit == k % unit == 0
        assert min(m, n) >= 256
        assert max(m, n) <= 8192
        assert 128 <= k <= 16384
        assert 2 * m * n * k <= SEEDED_FLOPS
    assert sum(m < 1024 for m, *_ in shapes) > 100 < sum(m > 2048 for m, *_ in shapes)  # octaves are as likely


@pytest.mark.parametrize("name", SEEDED)
def test_a_seeded_suite_has_the_seeded_shapes(name):
    problems = [group.problem for group in suite.load(name).groups]
    assert len({(p.type.name, p.layout) for p in problems}) == 1
    assert [(p.m, p.n, p.k) for p in problems] == seeded_shapes(20, 7)
    assert all(v.kernel.space for group in suite.load(name).groups for v in group.variants)


def test_no_other_suite_has_the_seeded_shapes():
    for path in paths.suites_root().glob("*.toml"):
        if path.stem not in SEEDED:
            products = [g.problem for g in suite.load(path.stem).groups if isinstance(g.problem, Gemm)]
            others = {(p.m, p.n, p.k) for p in products}
            assert not others & set(seeded_shapes(20, 7)), path.stem


def row(m, usual, best, **change):
    given = {"variant": "gemm/08", "language": "cuda", "dtype": "fp32", "layout": "NN", "status": "ok"} | change
    return Row("gemm", m=m, n=m, k=m, vs_cublas=usual, vs_best_library=best, **given)


CHOSEN = [row(64, 0.5, 0.25), row(128, 2.0, 1.0), row(256, 9.0, 9.0, status="wrong")]
LIBRARY = [row(64, 1.0, 1.0, variant="library/cublas", language="library")]


def test_geometric_means_of_two_suites_side_by_side():
    text = report.means({"a": CHOSEN + LIBRARY, "a-seeded": [row(96, 0.81, 0.81)]})
    lines = [line.split("  ") for line in text.splitlines()]
    cells = [[cell.strip() for cell in line if cell.strip()] for line in lines]
    head = ["variant", "language", "type", "layout"]
    assert cells[0] == [*head, *(f"{s}: {w}" for s in ("a", "a-seeded") for w in ("x cuBLAS", "x best library"))]
    assert cells[2] == ["gemm/08", "cuda", "fp32", "NN", "1.000 (2)", "0.500 (2)", "0.810 (1)", "0.810 (1)"]
    assert len(cells) == 3
    assert report.means({"a": LIBRARY + CHOSEN[:1]}) == ""
    assert report.means({"a": []}) == ""
    other = row(64, 0.7, 0.7, dtype="bf16", layout="NT")
    assert "| bf16" in report.means({"a": CHOSEN, "b": [other]}, markdown=True)


def test_partners():
    assert report.partner("gemm-ampere") == NAME
    assert report.partner(NAME) == "gemm-ampere"


def test_a_readme_can_ask_for_means():
    results = {
        "h200/x": Results({"gpu": "H200"}, {}, CHOSEN),
        "h200/x-seeded": Results({"gpu": "H200"}, {}, [row(96, 0.81, 0.81)]),
    }
    text = "<!-- lowlevel:table h200/x means -->\nold\n<!-- /lowlevel:table -->"
    filled = report.update_markers(text, results)
    assert "x-seeded: x best library" in filled
    assert "1.000 (2)" in filled
    assert "old" not in filled
    del results["h200/x-seeded"]
    assert "seeded" not in report.update_markers(text, results)
    with pytest.raises(UsageError, match=r"ladder, tensor, products, .*probes, means"):
        report.update_markers(text.replace("means", "mean"), results)


def test_a_suites_run_prints_them_beside_its_partners(gpu, tmp_path, monkeypatch):  # noqa: F811
    made = tmp_path / "some-seeded.toml"
    section = "[[section]]\noperation = 'gemm'\nkernels = ['cuda:gemm/02*']\nshapes = '64x48x32,32'\n"
    made.write_text(section)
    Results({}, {}, CHOSEN).save(tmp_path / "some.json")
    out = io.StringIO()
    assert run_bench(BenchOptions(suite=str(made), json_path=tmp_path / "some-seeded.json"), out) == 0
    text = out.getvalue()
    assert "Geometric means over the shapes of a suite" in text
    assert "some: x cuBLAS" in text
    assert "some-seeded: x best library" in text
    assert "0.200 (2)" in text
    (tmp_path / "some.json").write_text("{")
    out = io.StringIO()
    assert run_bench(BenchOptions(suite=str(made), json_path=tmp_path / "some-seeded.json"), out) == 0
    assert "some: " not in out.getvalue()
    out = io.StringIO()
    run_bench(BenchOptions(("cuda:gemm/02*",), "64x48x32"), out)
    assert "Geometric" not in out.getvalue()


def test_tables_say_how_a_configuration_was_chosen():
    one = row(64, 0.5, 0.5, config="128x128x8", chosen_by="tuned (class)")
    assert "128x128x8, tuned (class)" in report.table([one])
    assert "chosen" not in report.table([row(64, 0.5, 0.5, config="128x128x8", chosen_by="rule")])


def test_the_suites_are_all_known():
    assert NAME in {path.stem for path in bench.paths.suites_root().glob("*.toml")}
