"""Sweeps of compile-time numbers, and epilogues of suites: names, refusals, rows."""

import io
import json
from dataclasses import replace

import pytest
from fake_device import FakeContender
from test_bench import gpu, product  # noqa: F401

from lowlevel import bench, catalog, cli, gpu_worker, hardware, report, static, suite, tuned
from lowlevel.bench import BenchOptions, run_bench
from lowlevel.catalog.entry import Expect, Variant, read_config
from lowlevel.catalog.select import select
from lowlevel.catalog.sweep import left_out, swept
from lowlevel.commands import bench as bench_command
from lowlevel.commands import verify
from lowlevel.contender import launch_shape
from lowlevel.errors import CompileError, UsageError
from lowlevel.results import Results, Row
from lowlevel.verify import Verdict
from lowlevel.worker import Worker

OTHER = "cuda:gemm/04_register_tile[fp32,NN,64x64x16,TM=4,TN=4,PAD=1]"
LISTED = "cuda:gemm/04_register_tile[fp32,NN,64x64x8,TM=4,TN=4,PAD=1]"


def run(capsys, *words) -> tuple[int, str, str]:
    code = cli.main(list(words))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.fixture
def no_gpu(monkeypatch):
    for module in ("bench", "verify"):
        monkeypatch.setattr(f"lowlevel.commands.{module}.probe", lambda: "no CUDA driver")


class TestNames:
    def test_every_configuration_is_read_back(self):
        for kernel in catalog.kernels():
            for config in kernel.configs:
                text = Variant(kernel, kernel.types[0], "", config).config_text
                found = read_config(text.split(",") if text else [], tuple(config), kernel.optional)
                assert found == config
                assert list(found) == list(config)

    def test_a_name_leaves_out_an_optional_number_at_its_value(self, monkeypatch):
        """A number that came later: names of before stand for the value that does what was done before."""
        before = catalog.find(LISTED).kernel
        later = replace(before, configs=tuple({**c, "CUT": n} for c in before.configs for n in (1, 2)))
        later = replace(later, optional={"CUT": 1})
        monkeypatch.setattr(catalog, "kernels", lambda: (later,))
        for name, cut in ((LISTED, 1), (OTHER, 1), (OTHER.replace("]", ",CUT=2]"), 2)):
            assert (catalog.find(name).name, catalog.find(name).config["CUT"]) == (name, cut)
        assert list(catalog.find(OTHER).config) == list(later.configs[0])
        with pytest.raises(UsageError, match="no variant"):
            catalog.find(OTHER.replace("]", ",CUT=1]"))  # a variant has one name

    def test_numbers_that_are_not_listed_are_found(self):
        variant = catalog.find(OTHER)
        assert variant.name == OTHER
        assert variant.config == {"BM": 64, "BN": 64, "BK": 16, "TM": 4, "TN": 4, "PAD": 1}
        assert not variant.listed
        assert catalog.find(LISTED).listed
        staged = "cuda:gemm/08_warp_tile[fp32,NN,128x256x16,s5,WM=64,WN=64,KGROUPS=1,bias_relu]"
        assert catalog.find(staged).config["STAGES"] == 5
        assert catalog.find(staged).epilogue == "bias_relu"
        assert catalog.find("cuda:transpose/01_naive[bf16,32x32,ROWS=4]").config == {"BM": 32, "BN": 32, "ROWS": 4}

    @pytest.mark.parametrize(
        "inside",
        [
            "fp32,NN,64x64x16,TM=4,TN=4",  # a number is missing
            "fp32,NN,64x64x16,TM=4,TN=4,PAD=1,BQ=2",  # one too many
            "fp32,NN,64x64x16,TN=4,TM=4,PAD=1",  # another order
            "fp32,NN,64x64,TM=4,TN=4,PAD=1",
            "fp32,NN,64x64x16x16,TM=4,TN=4,PAD=1",
            "fp32,NN,64x64x16,TM=4,TN=4,PAD=-1",
            "fp32,NN,64x64x016,TM=4,TN=4,PAD=1",
            "fp32,NT,64x64x16,TM=4,TN=4,PAD=1",  # a layout that the kernel does not have
            "fp32,NN,64x64x16,TM=4,TN=4,PAD=1,bias",  # nor this epilogue
        ],
    )
    def test_any_other_bracket_is_none(self, inside):
        with pytest.raises(UsageError, match="no variant"):
            catalog.find(f"cuda:gemm/04_register_tile[{inside}]")

    def test_a_ptx_file_has_one_set_of_numbers(self):
        assert catalog.find(LISTED.replace("cuda", "ptx")).listed
        for find in (catalog.find, lambda name: select([name])):
            with pytest.raises(UsageError, match=r"no variant .* its numbers are written in its file"):
                find(OTHER.replace("cuda", "ptx"))

    def test_the_whole_name_is_a_pattern(self):
        (variant,) = select([OTHER])
        assert (variant.name, variant.chosen_by) == (OTHER, "named")
        assert [v.name for v in select([OTHER, LISTED])] == [LISTED, OTHER]
        with pytest.raises(UsageError, match="no '64x64x16', no 'BAD=1'; a bracket takes fp32, "):
            select([OTHER.replace("PAD", "BAD")])

    def test_the_numbers_cross_to_another_process_by_the_name(self):
        with Worker("test") as worker:
            assert worker.call(_config_of, OTHER, deadline=60) == catalog.find(OTHER).config

    def test_own_kernels_too(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "my.cu").write_text("")
        name = "my.cu as cuda:gemm/04_register_tile"
        points = swept(select([name]), {"BK": (8, 32)})
        assert points[1].shown == "mine:my.cu[fp32,NN,64x64x32,TM=4,TN=4,PAD=1]"
        assert catalog.find(points[1].name) == points[1]
        assert select([points[1].name]) == [points[1]]
        catalog.own_kernel_of.cache_clear()


def _config_of(name: str) -> dict:
    return dict(catalog.find(name).config)


class TestPoints:
    def test_the_product_each_once(self):
        (default,) = (v for v in select(["cuda:gemm/04_register_tile"]) if v.kernel.language == "cuda")
        points = swept([default], {"BK": (8, 16, 8), "PAD": (0, 1)})
        assert [(p.config["BK"], p.config["PAD"]) for p in points] == [(8, 0), (8, 1), (16, 0), (16, 1)]
        assert {p.chosen_by for p in points} == {"sweep"}
        assert [p.listed for p in points] == [True, True, False, False]
        assert swept([default], {}) == [default]

    def test_no_rule_changes_a_point(self):
        (tile,) = select(["gemm/08_warp_tile"])
        (point,) = swept([tile], {"BK": (16,)})
        problem = suite.selection(["gemm/08_warp_tile"], "64")[0].problem
        assert tuned.suited(tile, problem, hardware.GPUS["H200"]).config != tile.config
        assert tuned.suited(point, problem, hardware.GPUS["H200"]) is point

    def test_the_launch_and_the_defines_follow(self):
        (point,) = swept(select(["cuda:gemm/05_large_register_tile"]), {"TM": (4,)})
        problem = suite.selection(["gemm/01_naive"], "256")[0].problem
        shape = launch_shape(point.kernel.launch, point.config, problem, hardware.GPUS["H200"])
        assert shape.block == (512, 1, 1)
        assert ("TM", "4") in catalog.request(point, "sm_80").defines

    def test_ptx_is_left_out_and_named(self):
        both = select(["gemm/04_register_tile"])
        assert {v.kernel.language for v in swept(both, {"BK": (16,)})} == {"cuda"}
        assert left_out(both).startswith("the sweep leaves out ptx:gemm/04_register_tile: its numbers are written in")
        assert left_out(swept(both, {"BK": (16,)})) == ""

    @pytest.mark.parametrize("numbers", [{"TM": 128}, {"TM": 0}])
    def test_numbers_that_leave_no_block(self, numbers):
        variant = catalog.find(LISTED).with_config(**numbers)
        problem = suite.selection(["gemm/01_naive"], "256")[0].problem
        with pytest.raises(UsageError, match=r"its numbers make (no launch|a block of 0x1x1 threads)"):
            launch_shape(variant.kernel.launch, variant.config, problem, hardware.GPUS["H200"])


WRONG = {
    ("build", "gemm/04*", "--sweep", "BQ=8"): "no compile-time number 'BQ'; it has: BM, BN, BK, TM, TN, PAD",
    ("build", "gemm/*", "--sweep", "BK=8"): "cuda:gemm/01_naive has no compile-time number 'BK'; it has: BM, BN",
    ("build", "probe/*", "--sweep", "BK=8"): "it has: none",
    ("verify", "gemm/04*", "--sweep", "BQ=8"): "no compile-time number 'BQ'",
    ("bench", "gemm/04*", "--sweep", "BQ=8"): "no compile-time number 'BQ'",
    ("build", "ptx:gemm/04*", "--sweep", "BK=8"): "no sweep of ptx:gemm/04_register_tile: its numbers are written in",
    ("bench", "gemm/04*", "--language", "ptx", "--sweep", "BK=8"): "no sweep of ptx:gemm/04_register_tile",
    ("build", "gemm/04*", "--sweep", "BK=8", "--sweep", "BK=16"): "--sweep names BK twice",
    ("bench", "--sweep", "BK=8"): "--sweep is for kernels by name",
    ("bench", "gemm/04*", "--suite", "main", "--sweep", "BK=8"): "--sweep is for kernels by name",
    ("bench", "library/cublas", "--sweep", "BK=8"): "no variant 'library/cublas'",
}


@pytest.mark.parametrize("words", WRONG, ids=" ".join)
@pytest.mark.parametrize("there", [False, True], ids=["no GPU", "GPU"])
def test_wrong_sweeps_are_one_line_and_exit_code_2(monkeypatch, no_gpu, capsys, words, there):
    if there and words[0] == "bench":
        monkeypatch.setattr(bench_command, "probe", lambda: None)
    code, _, err = run(capsys, *words)
    assert code == 2
    assert WRONG[words] in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("text", ["BK", "BK=", "BK=8,", "BK=x", "=3", "BK=-1", "BK=8 16"])
def test_a_sweep_is_a_name_and_numbers(capsys, text):
    with pytest.raises(SystemExit) as ended:
        cli.main(["build", "gemm/04*", "--sweep", text])
    assert ended.value.code == 2
    assert "is not NAME=n,n,..." in capsys.readouterr().err


class TestBuild:
    def test_a_row_a_point(self, capsys):
        words = ("gemm/04*", "--sweep", "BK=8,16", "--sweep", "PAD=0", "--arch", "sm_80", "--json")
        code, out, err = run(capsys, "build", *words)
        rows = json.loads(out)
        assert code == 0
        assert [r["variant"] for r in rows] == [
            "cuda:gemm/04_register_tile[fp32,NN,64x64x8,TM=4,TN=4,PAD=0]",
            "cuda:gemm/04_register_tile[fp32,NN,64x64x16,TM=4,TN=4,PAD=0]",
        ]
        assert [r["shared"] for r in rows] == [4096, 8192]
        assert err.count("the sweep leaves out ptx:gemm/04_register_tile") == 1

    def test_what_cannot_be_costs_its_row(self, capsys):
        words = ("cuda:gemm/02*", "--sweep", "BK=16,32", "--arch", "sm_80", "--json")
        code, out, _ = run(capsys, "build", *words)
        refused, fine = json.loads(out)
        assert code == 0
        assert refused["skipped"].startswith("02_tiled.cu:20: error: static assertion failed with")
        assert fine["registers"] > 0
        words = ("cuda:gemm/04*", "--sweep", "BK=0,8", "--arch", "sm_80", "--json")
        code, out, _ = run(capsys, "build", *words)
        broken, fine = json.loads(out)
        assert code == 1
        assert "error: the size of an array must be greater than zero" in broken["error"]
        assert fine["registers"] > 0
        words = ("cuda:transpose/01*[fp32]", "--sweep", "ROWS=0,8", "--arch", "sm_80", "--json")
        code, out, err = run(capsys, "build", *words)
        assert (code, err) == (0, "")
        assert json.loads(out)[0]["skipped"] == "its numbers make a block of 32x0x1 threads"

    def test_what_the_entry_promises_it_promises_of_its_own_numbers(self):
        wide = {"TM": (16,), "TN": (16,)}  # 256 sums a thread: they spill, which is what one wanted to see
        (tile,) = select(["cuda:gemm/05*"])
        absent = replace(tile.kernel, expect=Expect(sass={"sm_80": ("HGMMA",)}))
        (row,) = static.static_rows(swept([replace(tile, kernel=absent)], wide), ["sm_80"])
        assert row.spills > 0
        assert row.ok
        assert row.missing == ()
        assert not replace(row, listed=True).ok

    def test_a_static_assert_that_refuses_the_entrys_own_numbers_is_a_failure(self):
        error = CompileError("x.cu:1: error: static assertion failed with")
        assert static.refuses_numbers(catalog.find(OTHER), error)
        assert not static.refuses_numbers(catalog.find(LISTED), error)
        assert not static.refuses_numbers(catalog.find(OTHER), CompileError("x.cu:1: error: division by zero"))


def test_verify_checks_each_point(capsys, monkeypatch):
    called = []

    class Child:
        def __init__(self, *_):
            pass

        def call(self, function, *args, deadline):
            if function is gpu_worker.limits:
                return hardware.typical("sm_80")
            called.append(args[0])
            if "64x64x16" in args[0]:
                raise UsageError("gemm: 4096 threads a block, the limit is 1024")
            return Verdict(True)

        def close(self):
            pass

    monkeypatch.setattr(verify, "probe", lambda: None)
    monkeypatch.setattr(verify, "Worker", Child)
    words = ("cuda:gemm/04*", "33", "--kind", "integer", "--sweep", "BK=8,16", "--json")
    code, out, _ = run(capsys, "verify", *words)
    assert code == 0
    assert called == [LISTED, OTHER]
    assert [r["verdict"] for r in json.loads(out)] == ["ok", "refused"]
    code, out, err = run(capsys, "verify", "cuda:gemm/02*", "--kind", "integer", "--sweep", "BK=16", "--json")
    (row,) = json.loads(out)  # not a row for each shape
    assert (code, row["verdict"]) == (1, "refused")
    assert err == "lowlevel: nothing was verified: every row is refused, for the reason in it\n"
    assert "static assertion failed" in row["reason"]
    code, out, _ = run(capsys, "verify", "cuda:gemm/04*", "--kind", "integer", "--sweep", "BK=0", "--json")
    assert [r["verdict"] for r in json.loads(out)] == ["failed"]
    assert code == 1


class TestBench:
    def measured(self, tmp_path, **options):
        path = tmp_path / "rows.json"
        out = io.StringIO()
        code = run_bench(BenchOptions(shapes="64x48x32", json_path=path, **options), out)
        return code, Results.load(path).rows, out.getvalue()

    def test_a_row_a_point_that_can_be_measured_again(self, gpu, tmp_path):  # noqa: F811
        code, rows, text = self.measured(tmp_path, patterns=("gemm/04*",), sweep={"BK": (8, 16)})
        ours = [r for r in rows if r.language == "cuda"]
        assert code == 0
        assert [r.config for r in ours] == ["64x64x8,TM=4,TN=4,PAD=1", "64x64x16,TM=4,TN=4,PAD=1"]
        assert {(r.status, r.chosen_by) for r in ours} == {("ok", "sweep")}
        assert [r.shared_bytes for r in ours] == [4352, 8448]
        assert "gemm/04_register_tile (64x64x16,TM=4,TN=4,PAD=1)" in text
        assert ours[1].repro == f"lowlevel bench '{OTHER}' 64x48x32"
        code, rows, _ = self.measured(tmp_path, patterns=(OTHER,))
        assert [r.identity for r in rows if r.language == "cuda"] == [ours[1].identity]
        assert {r.variant for r in rows if r.language == "library"} >= {"library/cublas"}

    def test_what_cannot_be_costs_its_row(self, gpu, tmp_path):  # noqa: F811
        code, rows, _ = self.measured(tmp_path, patterns=("cuda:gemm/02*",), sweep={"BK": (16, 32)})
        refused, fine = (r for r in rows if r.language == "cuda")
        assert (code, refused.status, fine.status) == (0, "skipped", "ok")
        assert "static assertion failed" in refused.reason
        code, rows, _ = self.measured(tmp_path, patterns=("cuda:gemm/04*",), sweep={"BK": (0, 8)})
        ours = [r for r in rows if r.language == "cuda"]
        assert (code, [r.status for r in ours]) == (1, ["failed", "ok"])
        assert "the size of an array" in ours[0].reason

    def test_the_command_line_hands_it_on(self, monkeypatch, capsys):
        seen = []
        monkeypatch.setattr(bench_command, "probe", lambda: None)
        monkeypatch.setattr(bench, "run_bench", lambda options: seen.append(options) or 0)
        assert run(capsys, "bench", "gemm/04*", "1024", "--sweep", "BK=8,16", "--sweep", "PAD=0,1")[0] == 0
        (options,) = seen
        assert options.sweep == {"BK": (8, 16), "PAD": (0, 1)}
        (group,) = bench.choose(options).groups
        assert len(group.variants) == 4

    def test_without_a_gpu_the_static_table_has_the_points(self, no_gpu, capsys):
        code, out, _ = run(capsys, "bench", "cuda:gemm/04*", "1024", "--sweep", "BK=16,32", "--arch", "sm_80")
        assert code == 0
        assert OTHER in out
        assert "64x64x32" in out
        assert LISTED not in out

    def test_tables_tell_points_and_epilogues_apart(self):
        made = Row("gemm", "gemm/04", config="64x64x8", language="cuda", m=8, n=8, k=8)
        others = [
            replace(made, config="64x64x16", chosen_by="sweep"),
            replace(made, epilogue="bias"),
            replace(made, variant="library/x", language="library", config="algorithm 3"),
        ]
        text = report.matrix([made, *others], lambda r: r.config)
        names = [line.split("|")[1].strip() for line in text.splitlines()[2:]]
        assert names == ["gemm/04", "gemm/04 (64x64x16)", "gemm/04 + bias", "library/x"]


class TestSuites:
    def groups(self, tmp_path, *sections):
        path = tmp_path / "made.toml"
        path.write_text("".join(f"[[section]]\noperation = 'gemm'\nshapes = '64'\n{s}\n" for s in sections))
        return suite.load(str(path)).groups

    def test_a_section_sweeps(self, tmp_path):
        (group,) = self.groups(tmp_path, "kernels = ['gemm/04*']\nsweep = { BK = [8, 16], PAD = [0, 1] }")
        assert [(v.config["BK"], v.config["PAD"]) for v in group.variants] == [(8, 0), (8, 1), (16, 0), (16, 1)]

    def test_a_section_takes_epilogues(self, tmp_path):
        found = self.groups(tmp_path, "kernels = ['gemm/0*']\nepilogues = ['none', 'bias_relu']")
        assert [g.problem.epilogue for g in found] == ["none", "bias_relu"]
        names = [{v.kernel.rung for v in g.variants} for g in found]
        assert "01_naive" in names[0] - names[1]
        assert {"05_large_register_tile", "08_warp_tile"} <= names[1]
        assert {v.chosen_by for g in found for v in g.variants} == {"default"}  # 08's rule still chooses by shape
        assert {g.problem.epilogue for g in self.groups(tmp_path, "kernels = ['gemm/08*']")} == {"none"}

    def test_sections_of_one_problem_share_its_rounds(self, tmp_path):
        first = "kernels = ['cuda:gemm/02*', 'cuda:gemm/04*']"
        second = "kernels = ['gemm/04*']\nsweep = { BK = [8, 16] }"
        (group,) = self.groups(tmp_path, first, second)
        assert [(v.kernel.rung, v.config["BK"], v.chosen_by) for v in group.variants] == [
            ("02_tiled", 32, "default"),
            ("04_register_tile", 8, "default"),
            ("04_register_tile", 16, "sweep"),
        ]
        assert group.libraries

    def test_a_section_measures_the_choice_also_with_another_number(self, tmp_path):
        groups = self.groups(tmp_path, "kernels = ['cuda:gemm/14*[bf16,NT]']\nalso = { PDL = 1 }")
        made = suite.Suite("made", "", 1.0, groups)
        (wide,) = suite.select(["cuda:gemm/14_wide[bf16,NT,64x64x64]"])
        found = [v.config for v in suite.suited(made, hardware.GPUS["H200"]).groups[0].variants]
        assert all(config | {"PDL": 1} in found for config in found)
        assert len(found) == len({tuple(config.items()) for config in found})
        plain = suite.Suite("made", "", 1.0, [replace(groups[0], variants=(wide,), also=(("BQ", 1),))])
        assert len(suite.suited(plain, hardware.GPUS["H200"]).groups[0].variants) == 1  # it has no such number

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("also = { PDL = -1 }", "made.toml: also is a table of whole numbers"),
            ("sweep = { BQ = [8] }", "no compile-time number 'BQ'; it has: BM, BN, BK, TM"),
            ("sweep = { BK = 8 }", "made.toml: sweep is a table of lists of whole numbers"),
            ("sweep = { BK = [] }", "sweep is a table of lists"),
            ("sweep = {}", "sweep is a table of lists"),
            ("sweep = { BK = [-8] }", "sweep is a table of lists"),
            ("sweep = { BK = ['8'] }", "sweep is a table of lists"),
            ("sweep = [8]", "sweep is a table of lists"),
            ("epilogues = 'bias'", "made.toml: epilogues is a list"),
            ("epilogues = []", "made.toml: epilogues is a list"),
            ("epilogues = ['gelu']", "made.toml: no epilogue 'gelu'; there are: none, bias"),
            ("epilogues = ['bias']", "none of the section's kernels has the epilogue 'bias'"),
        ],
    )
    def test_what_a_section_may_not_say(self, tmp_path, text, said):
        with pytest.raises(UsageError) as caught:
            self.groups(tmp_path, f"kernels = ['cuda:gemm/04*']\n{text}")
        assert said in str(caught.value)

    def test_the_chapters_suite(self):
        groups = suite.load("chapter").groups
        at_1024 = [g for g in groups if g.problem.label == "1024x1024x1024" and g.problem.type.name == "fp32"]
        bare, relu = at_1024
        assert (bare.problem.epilogue, relu.problem.epilogue) == ("none", "bias_relu")
        rungs = {(v.kernel.language, v.kernel.name.split("/")[1][:2]) for v in bare.variants}
        assert rungs >= {("cuda", f"0{n}") for n in range(1, 9)} | {("ptx", f"0{n}") for n in (1, 2, 4, 7)}
        points = {
            (v.config["BK"], v.config["PAD"]) for v in bare.variants if v.kernel.label == "cuda:gemm/04_register_tile"
        }
        assert points == {(bk, pad) for bk in (8, 16, 32, 64) for pad in (0, 1)}
        moved = next(g for g in groups if g.problem.label == "4096x4096" and g.problem.operation == "transpose")
        assert {v.kernel.rung[:2] for v in moved.variants} >= {"02", "03", "04", "05"}

    def test_the_epilogues_suite(self):
        found = {(g.problem.label, g.problem.epilogue) for g in suite.load("epilogues").groups}
        assert len(found) == 3 * 5
        assert {label for label, _ in found} == {"1024x1024x1024", "2048x2304x768", "4096x4096x128"}

    def test_its_rows_are_found_again(self):
        limits = hardware.GPUS["H200"]
        for name in ("chapter", "epilogues"):
            for variant in suite.suited(suite.load(name), limits).variants():
                assert catalog.find(variant.name) == variant


def test_a_wrong_point_is_a_wrong_row(gpu, tmp_path, monkeypatch):  # noqa: F811
    wrong = lambda name, _p, _b: FakeContender(name, lambda a: product(a) * (1.5 if name == OTHER else 1.0))  # noqa: E731
    monkeypatch.setattr(gpu_worker, "contender", wrong)
    path = tmp_path / "rows.json"
    options = BenchOptions(("gemm/04*",), "64x48x32", json_path=path, sweep={"BK": (8, 16)})
    assert run_bench(options, io.StringIO()) == 1
    assert [r.status for r in Results.load(path).rows if r.language == "cuda"] == ["ok", "wrong"]
