"""A file of one's own in the place of a catalog kernel: names, errors, what is compiled, what the child is told."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import lowlevel
from lowlevel import bench, catalog, cli, declare, gpu_worker, hardware, paths, suite
from lowlevel.catalog.select import entry_for, select
from lowlevel.commands import bench as bench_command
from lowlevel.commands import common, verify
from lowlevel.errors import CompileError, UsageError
from lowlevel.problems.make import make_problem
from lowlevel.toolchain.build import build
from lowlevel.verify import Verdict
from lowlevel.worker import Worker

DECLARATION = (
    'extern "C" __global__ void gemm(const float* A, const float* B, float* C, int M, int N, int K, '
    "int lda, int ldb, int ldc)"
)
EMPTY = DECLARATION + " { if (M < 0) C[0] = A[0] + B[0] + BM; }\n"


def run(capsys, *words) -> tuple[int, str, str]:
    code = cli.main(list(words))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """An empty folder with two files of one's own, the first named like a shape; no GPU; nothing remembered."""
    monkeypatch.chdir(tmp_path)
    for module in ("bench", "verify", "sanitize"):
        monkeypatch.setattr(f"lowlevel.commands.{module}.probe", lambda: "no CUDA driver")
    (tmp_path / "01_my.cu").write_text(EMPTY)
    (tmp_path / "my.ptx").write_text((paths.kernel_root() / "ptx/gemm/02_tiled.ptx").read_text())
    yield tmp_path
    catalog.own_kernel_of.cache_clear()


def mine(name="01_my.cu as cuda:gemm/02_tiled"):
    (variant,) = select([name])
    return variant


class TestNames:
    def test_every_listed_configuration_can_be_named(self):
        """A row's whole name, as its command to repeat it gives it; a part of its numbers is none."""
        entry = next(k for k in catalog.kernels() if k.label == "cuda:gemm/16_split_k")
        kernel = catalog.own_kernel_of("01_my.cu", entry.label, ())
        others = [v for v in kernel.all_variants() if v.epilogue == "none"]
        assert len({v.config_text for v in others}) == len(entry.configs) > 1
        for variant in others[:: len(others) // 7]:
            assert mine(variant.name) == replace(variant, chosen_by=mine(variant.name).chosen_by)
        with pytest.raises(UsageError, match="its type and layout, or all numbers"):
            mine("01_my.cu as cuda:gemm/16_split_k[bf16,NT,SPLITS=27]")

    def test_a_name_is_enough_to_make_the_kernel(self):
        variant = mine()
        assert variant.name == "01_my.cu as cuda:gemm/02_tiled[fp32,NN,32x32x32]"
        assert variant.shown == "mine:01_my.cu[fp32,NN,32x32x32]"
        assert catalog.find(variant.name) == variant
        catalog.own_kernel_of.cache_clear()
        again = catalog.find(variant.name)  # as another process does
        assert again.name == variant.name
        assert again.kernel.launch == variant.kernel.launch

    def test_everything_but_the_source_is_the_entrys(self):
        entry, kernel = catalog.find("cuda:gemm/02_tiled[fp32,NN,32x32x32]").kernel, mine().kernel
        parts = "entry archs types layouts fewer_layouts configs type_configs params launch needs before"
        for part in parts.split():
            assert getattr(kernel, part) == getattr(entry, part)
        assert (kernel.operation, kernel.rung, kernel.language) == ("gemm", "02_tiled", "cuda")
        assert not kernel.expect.sass
        assert entry.expect.sass

    def test_numbers_travel_with_the_name(self):
        variant = mine("01_my.cu as cuda:gemm/02_tiled BM=16 BN=64")
        assert variant.config == {"BM": 16, "BN": 64, "BK": 32}
        assert catalog.find(variant.name).config == variant.config
        assert ("BM", "16") in catalog.request(variant, "sm_80").defines
        problem = make_problem(variant, (64,))
        assert variant.kernel.launch.grid(variant.config, problem, None) == (1, 4, 1)
        assert variant.kernel.launch.block(variant.config, problem, None) == (64, 16, 1)

    def test_a_bracket_chooses_among_types(self):
        name = "01_my.cu as cuda:transpose/01_naive"
        assert [v.type.name for v in select([name])] == ["fp32", "bf16"]
        assert [v.type.name for v in select([name + "[bf16]"])] == ["bf16"]

    def test_as_takes_a_name_a_label_or_a_beginning(self):
        for text in ("gemm/02", "gemm/02*", "gemm/02_tiled", "cuda:gemm/02"):
            assert entry_for(text, "cuda").label == "cuda:gemm/02_tiled"
        assert entry_for("gemm/02", "ptx").label == "ptx:gemm/02_tiled"
        assert entry_for("cuda:gemm/02", "ptx").label == "cuda:gemm/02_tiled"
        assert entry_for("copy/01", "ptx").label == "cuda:copy/01_vectorised"

    def test_files_are_no_shapes(self):
        words = common.split_words(["01_my.cu", "1024", "01_my.cu as cuda:gemm/02_tiled[fp32]"])
        assert words.shapes == "1024"
        assert len(words.patterns) == 2

    def test_it_crosses_to_another_process_by_its_name(self):
        with Worker("test") as worker:
            assert worker.call(_path_of, mine().name, deadline=60) == mine().kernel.path


def _path_of(name: str) -> str:
    return catalog.find(name).kernel.path


WRONG = {
    ("build", "01_my.cu"): "01_my.cu is a file: say whose place it takes, as in `--as gemm/02_tiled`",
    ("build", "gemm", "--as", "gemm/02"): "name one that ends in .cu, .ptx or .mlir",
    ("build", "gemm", "-D", "BM=16"): "name one that ends in .cu, .ptx or .mlir",
    ("build", "no.cu", "--as", "gemm/02"): "no file 'no.cu' in ",
    (
        "show",
        "01_my.cu",
        "--as",
        "gemm/0",
    ): "stands for several kernels: gemm/01_naive, gemm/02_tiled, gemm/03_padded_tile, ",
    ("show", "01_my.cu", "--as", "gemm/02_tilde"): "no kernel 'gemm/02_tilde'; did you mean gemm/02_tiled",
    ("show", "01_my.cu", "--as", "gemm/02", "-D", "BQ=3"): "no compile-time number 'BQ'; it has: BM, BN, BK",
    ("show", "01_my.cu", "--as", "copy/01", "-D", "BM=3"): "it has: THREADS",
    ("verify", "01_my.cu", "--as", "gemm/02", "64"): "verify needs a GPU",
    ("verify", "01_my.cu", "--as", "transpose/01", "4x"): "'4x' is not a shape",
    ("list", "01_my.cu as cuda:gemm/77_none"): "no kernel 'cuda:gemm/77_none'",
    ("list", "01_my.cu as cuda:gemm/02_tiled[16x16x16]"): "takes its type and layout, or all numbers",
}


@pytest.mark.parametrize("words", WRONG, ids=" ".join)
def test_wrong_input_is_one_line_and_exit_code_2(capsys, words):
    code, _, err = run(capsys, *words)
    assert code == 2
    assert WRONG[words] in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("text", ["BM", "BM=", "BM=x", "BM=0", "=3", "B M=3"])
def test_a_number_is_a_name_and_a_value(capsys, text):
    with pytest.raises(SystemExit) as ended:
        cli.main(["build", "01_my.cu", "--as", "gemm/02", "-D", text])
    assert ended.value.code == 2
    assert "is not NAME=value" in capsys.readouterr().err


class TestCompileErrors:
    def error(self, capsys, folder, text, name="bad.cu", as_="gemm/02"):
        (folder / name).write_text(text)
        code, out, err = run(capsys, "show", name, "sass", "--as", as_)
        assert (code, out) == (1, "")
        assert len(err.splitlines()) == 1
        return err

    def test_the_file_and_line(self, capsys, folder):
        said = self.error(capsys, folder, "\n\n" + EMPTY.replace("M < 0", "M < zero"))
        assert 'bad.cu:3: error: identifier "zero" is undefined' in said

    def test_a_missing_kernel(self, capsys, folder):
        said = self.error(capsys, folder, EMPTY.replace(" gemm(", " product("))
        assert "no kernel 'gemm'; the module has: product" in said
        assert f"expected: {DECLARATION}" in said
        assert "missing?" not in said

    def test_a_kernel_that_is_not_extern_c(self, capsys, folder):
        assert 'is extern "C" missing?' in self.error(capsys, folder, EMPTY.replace('extern "C"', ""))

    def test_another_number_of_parameters(self, capsys, folder):
        said = self.error(capsys, folder, EMPTY.replace(", int ldc", ""))
        assert "kernel 'gemm' takes 8 parameters, and is passed 9" in said
        assert DECLARATION in said
        more = self.error(capsys, folder, EMPTY.replace("int ldc", "int ldc, int more"))
        assert "takes 10 parameters, and is passed 9" in more

    def test_ptx_too(self, capsys, folder):
        ptx = (folder / "my.ptx").read_text()
        said = self.error(capsys, folder, ptx.replace(".s32 ldb, .param .s32 ldc", ".s32 ldb"), "few.ptx")
        assert "few.ptx" in said
        said = self.error(capsys, folder, ptx, "other.ptx", "transpose/01")
        assert "expected: .visible .entry transpose(const unsigned int* A, unsigned int* C, int M, int N" in said
        said = self.error(capsys, folder, ptx.replace("\n    bar.sync", "\n    bar.sink", 1), "typo.ptx")
        line = next(i for i, text in enumerate(ptx.splitlines(), 1) if text.startswith("    bar.sync"))
        assert f"typo.ptx:{line}: " in said

    def test_a_kernel_kept_in_the_cache_is_not_one_for_another_entry(self, folder):
        """The same file, entry name and numbers, asked for with other parameters, is compiled and judged again."""
        request = catalog.request(mine(), "sm_80")
        build(request)
        with pytest.raises(CompileError, match="takes 9 parameters, and is passed 1"):
            build(replace(request, parameters=(("int M",),)))


def test_declarations_of_every_kernel_have_a_parameter_for_each_value():
    for variant in catalog.variants():
        for step in variant.kernel.steps:
            found = declare.declared(variant, step)
            assert [text.split()[-1] for text in found] == list(step.params)
            assert not any(text.startswith("void*") for text in found if not text.endswith("workspace"))


class TestCommands:
    def test_build_and_show(self, capsys):
        code, out, _ = run(capsys, "build", "01_my.cu", "--as", "gemm/02", "--json", "--arch", "sm_80")
        assert code == 0
        (row,) = json.loads(out)
        assert (row["variant"], row["missing"]) == ("mine:01_my.cu[fp32,NN,32x32x32]", [])
        assert run(capsys, "show", "01_my.cu", "--as", "gemm/02")[1] == EMPTY
        assert ".entry gemm" in run(capsys, "show", "01_my.cu", "ptx", "--as", "gemm/02")[1]
        assert "EXIT" in run(capsys, "show", "01_my.cu", "--as", "gemm/02", "sass")[1]
        assert (
            json.loads(run(capsys, "show", "my.ptx", "resources", "--as", "gemm/02", "--json")[1])[0]["shared"] == 8192
        )

    def test_the_launch_follows_the_numbers(self, capsys):
        words = ("--as", "gemm/02", "-D", "BM=4", "-DBN=32", "--json", "--arch", "sm_80")
        (row,) = json.loads(run(capsys, "build", "01_my.cu", *words)[1])
        assert (row["variant"], row["threads"]) == ("mine:01_my.cu[fp32,NN,4x32x32]", 128)

    def test_bench_without_a_gpu_shows_it_beside_its_entry(self, capsys):
        code, out, _ = run(capsys, "bench", "01_my.cu", "--as", "gemm/02", "1024", "--arch", "sm_80")
        assert code == 0
        assert out.startswith("No GPU")
        assert "mine:01_my.cu[" in out
        assert "cuda:gemm/02_tiled[" in out
        assert "ptx:gemm/02_tiled[" not in out

    def test_bench_times_it_beside_its_entry_and_the_library(self, monkeypatch):
        seen = []
        monkeypatch.setattr(bench_command, "probe", lambda: None)
        monkeypatch.setattr(bench, "run_bench", lambda options: seen.append(options) or 0)
        assert cli.main(["bench", "my.ptx", "--as", "gemm/02", "1024"]) == 0
        (options,) = seen
        assert options.patterns == ("my.ptx as ptx:gemm/02_tiled", "ptx:gemm/02_tiled")
        (group,) = bench.choose(options).groups
        assert [v.shown for v in group.variants] == [
            "ptx:gemm/02_tiled[fp32,NN,32x32x32]",
            "mine:my.ptx[fp32,NN,32x32x32]",
        ]
        assert "library/cublas" in group.libraries

    def test_its_row_is_short_and_can_be_measured_again(self):
        (group,) = suite.selection(("01_my.cu as cuda:gemm/02_tiled",), "1024")
        options = bench.BenchOptions()
        made = bench.Bench.__new__(bench.Bench)
        made.options, made.environment = options, {}
        row = made._row(group.problem, group.variants[0])
        assert (row.variant, row.language) == ("mine:01_my.cu", "cuda")
        assert row.repro == "lowlevel bench '01_my.cu as cuda:gemm/02_tiled[fp32,NN,32x32x32]' 1024x1024x1024"
        assert mine(row.repro.split("'")[1]) == group.variants[0]

    def test_verify_sends_its_name_to_the_child(self, capsys, monkeypatch):
        called = []

        class Child:
            def __init__(self, *_):
                pass

            def call(self, function, *args, deadline):
                if function is gpu_worker.limits:
                    return hardware.typical("sm_80")
                called.append(args[0])
                return Verdict(True)

            def close(self):
                pass

        monkeypatch.setattr(verify, "probe", lambda: None)
        monkeypatch.setattr(verify, "Worker", Child)
        code, out, _ = run(capsys, "verify", "01_my.cu", "--as", "gemm/02", "33", "--kind", "integer")
        assert code == 0
        assert called == ["01_my.cu as cuda:gemm/02_tiled[fp32,NN,32x32x32]"]
        assert "mine:01_my.cu[" in out

    def test_a_path_with_spaces_and_from_elsewhere(self, capsys, folder):
        (folder / "my own").mkdir()
        (folder / "my own" / "as it is.cu").write_text(EMPTY)
        file = str(folder / "my own" / "as it is.cu")
        code, out, _ = run(capsys, "build", file, "--as", "gemm/02", "--json", "--arch", "sm_80")
        assert code == 0
        assert json.loads(out)[0]["variant"].startswith("mine:as it is.cu[")

    def test_headers_beside_the_file_are_found(self, capsys, folder):
        (folder / "mine.cuh").write_text("#define ZERO 0\n")
        (folder / "with.cu").write_text('#include "mine.cuh"\n' + EMPTY.replace("M < 0", "M < ZERO"))
        assert run(capsys, "build", "with.cu", "--as", "gemm/02", "--arch", "sm_80")[0] == 0


def test_options_may_stand_between_names_and_shapes():
    arguments = cli.parser().parse_args(["bench", "my.cu", "--as", "gemm/02", "1024", "-D", "BM=16", "2048"])
    assert arguments.words == ["my.cu", "1024", "2048"]
    assert arguments.numbers == [("BM", 16)]


def test_the_command_line_whole(folder):
    """As a user types it, in another process."""
    words = ["show", "01_my.cu", "resources", "--as", "gemm/02"]
    environment = {**os.environ, "PYTHONPATH": str(Path(lowlevel.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-m", "lowlevel", *words], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "NVRTC" in done.stdout


def test_select_says_what_a_missing_file_is():
    with pytest.raises(UsageError, match=r"no file 'gone\.cu'"):
        select(["gone.cu as cuda:gemm/02_tiled"])
