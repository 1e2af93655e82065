"""The command line: what it prints, what it refuses, and that wrong input is one line without a traceback."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest

from lowlevel import bench as bench_module
from lowlevel import catalog, cli, doctor
from lowlevel.catalog.select import one_kernel, select
from lowlevel.commands import bench, build, common, sanitize
from lowlevel.device.cuda.errors import NoDriverError
from lowlevel.errors import MissingError, UsageError
from lowlevel.problems.shapes import parse_shape


def run(capsys, *words) -> tuple[int, str, str]:
    code = cli.main(list(words))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.fixture
def no_gpu(monkeypatch):
    for module in ("bench", "verify", "sanitize"):
        monkeypatch.setattr(f"lowlevel.commands.{module}.probe", lambda: "no CUDA driver (libcuda.so.1 not found)")


WRONG = {
    ("list", "gemm/99_fast"): "no variant 'gemm/99_fast'",
    ("list", "gemm/02_tilde"): "did you mean gemm/02_tiled",
    ("list", "--arch", "sm_42"): "unknown architecture 'sm_42'; known: sm_75",
    ("list", "--language", "fortran"): "no language 'fortran'; there are: cuda, ptx",
    ("build", "gemm", "--arch", "banana"): "unknown architecture 'banana'",
    ("build", "gemm", "--gpu", "Voodoo"): "Voodoo",
    ("show", "gemm/0*"): "names several kernels: gemm/01_naive, gemm/02_tiled",
    ("show", "probe/tensor_map", "ptx", "--arch", "sm_80"): "written for sm_90; sm_80 is older",
    ("verify", "gemm", "--kind", "odd"): "no kind 'odd'; there are: normal, integer",
    ("verify", "gemm", "4096x"): "'4096x' is not a shape: write 4096, 2048x2304x768",
    ("bench", "gemm", "0x4x4"): "shape '0x4x4': one to three numbers, each 1 to 2147483647",
    ("verify", "gemm"): "verify needs a GPU: no CUDA driver",
    ("list", "--dtype", "fp99"): "no type 'fp99'; there are: fp32, tf32, fp16, fp16_acc16, bf16, fp8, int8",
    ("export", "gemm/08", "1024", "-o", ""): "an empty name is no folder; `-o .` writes into this one",
    ("build", "cuda:gemm/02", "--dtype", "bf16"): "--language; there are: cuda:gemm/02_tiled (fp32; NN)",
    ("list", "--dtype", "tf32", "--layout", "TT", "--language", "mlir"): "`lowlevel list` shows all",
    ("list", "--layout", "XX"): "no layout 'XX'; there are: NN, NT, TN, TT",
    ("list", "my.cu"): "'my.cu' is a file; this takes kernels of the catalog",
    ("profile", "gemm/02", "--print"): "profile needs a shape: lowlevel profile cuda:gemm/02_tiled 4096",
    ("sanitize",): "",
    ("sanitize", "gemm/99"): "no variant 'gemm/99'",
    ("sanitize", "--tool", "memchek"): "no tool 'memchek'; there are: memcheck, racecheck",
}


@pytest.mark.parametrize("words", WRONG, ids=" ".join)
def test_wrong_input_is_one_line_and_exit_code_2(no_gpu, capsys, words):
    code, _, err = run(capsys, *words)
    assert code == 2
    assert WRONG[words] in err
    assert err.startswith("lowlevel: ")
    assert len(err.splitlines()) == 1


UNREADABLE = {
    ("bench", "--budget", "soon"): "--budget: 'soon' is not a number",
    ("bench", "--budget", "nan"): "--budget: nan is not more than 0 seconds",
    ("bench", "--runs", "0"): "--runs: '0' is not a whole number above 0",
    ("verify", "--repeats", "0"): "--repeats: '0' is not a whole number above 0",
    ("build", "-j", "0"): "--jobs: '0' is not a whole number above 0",
    ("build", "my.cu", "-D", "BM=4294967296"): "-D: 'BM=4294967296' is not NAME=value with a whole number from 1",
    ("compare", "a.json", "b.json", "--least", "x"): "--least: 'x' is not a number",
    ("profile", "gemm/02", "64", "--launches", "x"): "--launches: 'x' is not a number of launches, 0 or more",
}


@pytest.mark.parametrize("words", UNREADABLE, ids=" ".join)
def test_unreadable_numbers_are_told_in_plain_words(no_gpu, capsys, words):
    with pytest.raises(SystemExit) as left:
        cli.main(list(words))
    assert left.value.code == 2
    assert UNREADABLE[words] in capsys.readouterr().err.splitlines()[-1]


def test_list_shows_the_ladder(capsys):
    code, out, _ = run(capsys, "list", "gemm/*", "--json")
    found = json.loads(out)
    assert code == 0
    assert [(r["kernel"], r["language"]) for r in found][:2] == [("gemm/01_naive", "cuda"), ("gemm/01_naive", "ptx")]
    assert found[0]["idea"] == found[1]["idea"]
    _, out, _ = run(capsys, "list", "--arch", "sm_80")
    assert "probe/tensor_map" not in out


def test_a_type_in_capitals_is_taken(capsys):
    assert run(capsys, "list", "gemm", "--dtype", "FP32,Bf16") == run(capsys, "list", "gemm", "--dtype", "fp32,bf16")


def test_build_prints_what_kernels_take(capsys):
    code, out, _ = run(capsys, "build", "ptx:gemm/02_tiled", "--arch", "80,compute_90", "--json")
    found = {r["arch"]: r for r in json.loads(out)}
    assert code == 0
    assert set(found) == {"sm_80", "sm_90"}
    assert found["sm_90"]["shared"] == 8192
    assert found["sm_80"]["occupancy"] == 1.0
    assert run(capsys, "build", "gemm/01_naive", "--markdown")[1].startswith("| variant")


def test_show_prints_each_form(capsys):
    assert ".version 6.3" in run(capsys, "show", "ptx:gemm/02_tiled")[1]
    assert ".visible .entry gemm" in run(capsys, "show", "gemm/02_tiled", "ptx", "--arch", "sm_80")[1]
    assert "FFMA" in run(capsys, "show", "gemm/02_tiled", "sass")[1]
    assert json.loads(run(capsys, "show", "gemm/02_tiled", "resources", "--json")[1])[0]["shared"] == 8192


def test_show_resources_tells_what_a_launch_asks_for(capsys):
    """Of the step that asks: 25 copies rows that TMA cannot read with another kernel, and none of 4096."""
    rows = json.loads(run(capsys, "show", "cuda:gemm/25", "resources", "--json")[1])
    rows += json.loads(run(capsys, "show", "gemm/02_tiled", "resources", "--json")[1])
    found = [(row["entry"], row["shared"], row["dynamic_shared"]) for row in rows]
    assert found == [("repack", 0, 0), ("gemm", 0, 229456), ("gemm", 8192, 0)]


@pytest.mark.parametrize("form", ["source", "ptx", "sass"])
def test_show_prints_json_where_it_is_asked_for(capsys, form):
    words = ("show", "cuda:gemm/02_tiled", form)
    found = json.loads(run(capsys, *words, "--json")[1])
    assert (found["variant"], found["form"]) == ("cuda:gemm/02_tiled[fp32,NN,32x32x32]", form)
    assert found["text"] == run(capsys, *words)[1]


def test_show_makes_no_table_of_a_text(capsys):
    code, out, err = run(capsys, "show", "gemm/02_tiled", "ptx", "--markdown")
    assert (code, out) == (2, "")
    assert err == "lowlevel: --markdown is for `show ... resources`, the one form that is a table\n"


def test_bench_without_a_gpu_says_so_first_and_times_nothing(no_gpu, capsys):
    code, out, _ = run(capsys, "bench", "gemm/01_naive")
    assert code == 0
    assert out.splitlines()[0].startswith("No GPU: no CUDA driver")
    assert "Nothing was timed" in out.splitlines()[0]
    assert "TFLOP" not in out
    assert "registers" in out
    code, out, _ = run(capsys, "bench")
    assert code == 0
    assert "probe/grid_barrier" in out


@pytest.mark.parametrize("words", [("--json", "x.json"), ("--resume",), ("--resume", "--json", "x.json")], ids=" ".join)
def test_bench_without_a_gpu_refuses_to_save_before_it_compiles(no_gpu, capsys, tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, "bench", *words)
    assert (code, out) == (2, "")
    assert "no GPU: no CUDA driver" in err
    assert f"nothing is written to {'x.json' if '--json' in words else 'the suite'}" in err
    assert len(err.splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_bench_without_a_gpu_says_that_processes_do_nothing(no_gpu, capsys):
    code, out, err = run(capsys, "bench", "gemm/01_naive", "--processes", "5")
    assert code == 0
    assert "registers" in out
    assert err == "lowlevel: --processes does nothing here: it is for measuring, which needs a GPU\n"


def test_bindings_missing_beside_a_driver_are_an_error(monkeypatch):
    from lowlevel.device.cuda import driver

    driver.bindings.cache_clear()
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    for there, error in ((True, MissingError), (False, NoDriverError)):
        monkeypatch.setattr(driver, "_loads", lambda _library, there=there: there)
        with pytest.raises(MissingError, match="pip install") as caught:
            driver.bindings()
        assert type(caught.value) is error
    driver.bindings.cache_clear()


def test_a_broken_driver_is_an_error_not_a_fallback(monkeypatch, capsys):
    def broken():
        raise MissingError("the CUDA driver is broken: reinstall the NVIDIA driver")

    monkeypatch.setattr(bench, "probe", broken)
    code, out, err = run(capsys, "bench")
    assert (code, out) == (2, "")
    assert err == "lowlevel: the CUDA driver is broken: reinstall the NVIDIA driver\n"


def test_bench_hands_its_options_on(monkeypatch):
    seen = []
    monkeypatch.setattr(bench, "probe", lambda: None)
    monkeypatch.setattr(bench_module, "run_bench", lambda options: seen.append(options) or 0)
    words = "bench gemm/0* 4096,512x64x32 128 --language ptx --timer cold --cool --runs 3 --json x.json --budget 7"
    assert cli.main(words.split()) == 0
    (options,) = seen
    assert options.patterns == ("ptx:gemm/0*",)
    assert options.shapes == "4096,512x64x32,128"
    assert (options.timer, options.cool, options.runs, options.budget) == ("cold", True, 3, 7.0)
    assert str(options.json_path) == "x.json"


def test_names_and_shapes_are_told_apart():
    words = common.split_words(["gemm/02*", "4096", "ptx:gemm", "1x2x3,4"])
    assert words.patterns == ("gemm/02*", "ptx:gemm")
    assert words.shapes == "4096,1x2x3,4"


def test_selection_by_glob_language_operation_and_whole_name():
    names = lambda *patterns: [v.name for v in select(patterns)]  # noqa: E731
    assert names("gemm/02*") == [f"{language}:gemm/02_tiled[fp32,NN,32x32x32]" for language in ("cuda", "ptx", "mlir")]
    assert names("gemm/02") == names("gemm/02*")
    assert names("ptx:gemm/02[NN]") == ["ptx:gemm/02_tiled[fp32,NN,32x32x32]"]
    assert all(n.startswith("ptx:transpose") for n in names("ptx:transpose"))
    assert names("cuda:transpose/01_naive[bf16,32x32,ROWS=8]") == ["cuda:transpose/01_naive[bf16,32x32,ROWS=8]"]
    assert names("cuda:transpose/01_naive[bf16]") == names("cuda:transpose/01_naive[bf16,32x32,ROWS=8]")
    with pytest.raises(UsageError):
        select(["gemm/01_naive[bf16]"])


@pytest.mark.parametrize(
    "name",
    [
        "gemm/25[",
        "gemm/25[bf16",
        "gemm/25[bf16]x",
        "gemm/25[bf16]]",
        "gemm/25[[bf16]",
        "x.cu as cuda:gemm/02_tiled[fp32",
    ],
)
def test_a_bracket_that_is_not_closed_is_no_name(name):
    with pytest.raises(UsageError, match="its bracket is not closed at the end"):
        select([name])


def test_a_bracket_in_the_name_of_a_file_is_not_a_variants():
    with pytest.raises(UsageError, match=r"'a\[1.cu' is a file"):
        select(["a[1.cu"])
    with pytest.raises(UsageError, match=r"no file 'a\[1.cu'"):
        select(["a[1.cu as cuda:gemm/02_tiled"])


def test_a_build_of_nothing_is_told(capsys):
    code, out, err = run(capsys, "build", "gemm/25", "--arch", "sm_80", "--json")
    assert code == 1
    assert all(row["skipped"] for row in json.loads(out))
    assert err == "lowlevel: nothing was built: every row is skipped, for the reason given\n"


def test_kernels_that_an_architecture_does_not_have_are_named_below_the_table(capsys):
    words = ["build", "cuda:gemm/20", "cuda:gemm/01", "cuda:probe/tensor_map", "--arch", "sm_80"]
    code, out, _ = run(capsys, *words)
    assert code == 0
    table, *below = out.rstrip("\n").split("\n\n")
    assert [line.split("[")[0] for line in table.splitlines()[2:]] == ["cuda:gemm/01_naive"]
    assert below == [
        "sm_80: written for sm_90a; wgmma exists only on sm_90a, so there is no sm_80 build: cuda:gemm/20",
        "sm_80: written for sm_90; sm_80 is older: cuda:probe/tensor_map",
    ]
    rows = json.loads(run(capsys, *words, "--json")[1])
    assert len({row["variant"].split("[")[0] for row in rows if row["skipped"]}) == 2


def test_rungs_are_gathered():
    names = ["cuda:gemm/08_warp_tile", "cuda:gemm/20_a", "cuda:gemm/21_b", "cuda:gemm/22_c", "cuda:gemm/24_d"]
    names += ["mlir:gemm/20_a", "mlir:gemm/21_b", "cuda:probe/tensor_map", "mine.cu as cuda:gemm/20_a"]
    assert build.gathered(names) == [
        "cuda:gemm/08, 20 to 22, 24",
        "mlir:gemm/20, 21",
        "cuda:probe/tensor_map",
        "mine.cu as cuda:gemm/20_a",
    ]


def test_interruption_is_one_line(monkeypatch, capsys):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("lowlevel.commands.list_.common.chosen", interrupted)
    assert run(capsys, "list") == (130, "", "lowlevel: interrupted\n")


#: Ctrl-C while an extension is imported whose own imports lose what is raised in them, as ml_dtypes's of numpy do.
INTERRUPTED_EARLY = """
import os, signal, sys
class Interrupts:
    def find_spec(self, name, *_):
        if name == "lowlevel.commands.advise":
            try:
                os.kill(os.getpid(), signal.SIGINT)
            except KeyboardInterrupt:
                raise ImportError("lost") from None
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests run in background
sys.meta_path.insert(0, Interrupts())
from lowlevel.cli import main
sys.exit(main(["list"]))
"""


def test_interruption_while_the_commands_are_imported_is_one_line():
    done = subprocess.run([sys.executable, "-c", INTERRUPTED_EARLY], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "lowlevel: interrupted\n")


@pytest.mark.parametrize("words", ["build gemm/02 --json", "list --json", "show ptx:gemm/02_tiled"])
def test_a_full_disk_is_one_line(words):
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "lowlevel", *words.split()]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (2, "lowlevel: No space left on device\n")


@pytest.mark.parametrize(("words", "command"), [((), "advise"), (("study",), "fragment"), (("--debug",), "advise")])
def test_without_a_command_the_help_is_shown(capsys, words, command):
    code, out, err = run(capsys, *words)
    assert (code, out) == (2, "")
    assert f"\n    {command} " in err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("bnch gemm 4096", "no command 'bnch'; did you mean bench?"),
        ("study frgment", "no tool 'frgment'; did you mean fragment?"),
        ("zzzz", "no command 'zzzz'; there are: list, build, verify"),
    ],
)
def test_of_a_mistyped_command_the_nearest_is_told(capsys, words, told):
    with pytest.raises(SystemExit) as left:
        cli.main(words.split())
    assert left.value.code == 2
    assert told in capsys.readouterr().err.splitlines()[-1]


def test_a_reader_that_has_enough_is_no_error():
    command = f"{sys.executable} -m lowlevel show ptx:gemm/02_tiled | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert done.stderr == ""
    assert done.stdout.startswith("// 02 tiled")


def test_ctrl_c_while_compiling_leaves_no_children(tmp_path):
    environment = {**os.environ, "LOWLEVEL_CACHE": str(tmp_path)}
    command = [sys.executable, "-m", "lowlevel", "build", "--arch", "sm_75,sm_80,sm_90,sm_100,sm_120", "-j", "1"]
    process = subprocess.Popen(
        command,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # ignored where the tests run in background
    )
    while process.poll() is None and len(list(tmp_path.glob("kernels/*/*"))) < 2:
        time.sleep(0.05)  # until one of many is compiled, and counted
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)  # to the end of its stderr, which every child holds open
    assert process.returncode == 130
    told = re.fullmatch(r"lowlevel: interrupted: (\d+) of (\d+) are compiled and kept; the same command goes on\n", err)
    kept, wanted = map(int, told.groups())
    assert 0 < kept <= len(list(tmp_path.glob("kernels/*/*"))) < wanted


def test_help_teaches(capsys):
    for words in (["--help"], ["bench", "--help"], ["verify", "--help"]):
        with pytest.raises(SystemExit) as ended:
            cli.main(words)
        assert ended.value.code == 0
        assert "lowlevel" in capsys.readouterr().out


def test_sanitizers_meet_more_than_one_tile_in_every_body_and_k_in_every_slice():
    for kernel in catalog.kernels():
        if kernel.operation != "gemm":
            continue
        odd, even = parse_shape(sanitize.shapes(kernel))
        for config in kernel.configs:
            assert all(m > config["BM"] and n > config["BN"] for m, n, _ in (odd, even))
            assert all(k > config.get("SPLITS", 0) * config.get("BK", 0) for _, _, k in (odd, even))
        assert odd[1] % 4
        assert all(size % 8 == 0 for size in even), "rows of 16-bit elements that are multiples of 16 bytes"
    for fast in (k for k in catalog.kernels() if k.choose):
        assert sanitize.names(fast)[0] == fast.label
        assert [catalog.find(name).config for name in sanitize.names(fast)[1:]] == list(fast.configs[1:])


def test_sanitizing_runs_every_tool_on_every_name(monkeypatch, capsys):
    seen = []
    monkeypatch.setattr(sanitize, "sanitizer", lambda: "tool")
    monkeypatch.setattr(sanitize, "probe", lambda: None)

    def sanitized(tool, check, name, shape):
        seen.append((tool, check, name, shape))
        return {"findings": int(check == "racecheck"), "said": ""}

    monkeypatch.setattr(sanitize, "sanitized", sanitized)
    code, out, _ = run(capsys, "sanitize", "cuda:gemm/08*", "--tool", "memcheck,racecheck", "--json")
    assert code == 1
    assert len(seen) == len(json.loads(out)) == 4
    assert [(r["tool"], r["findings"]) for r in json.loads(out)] == [("memcheck", 0), ("racecheck", 1)] * 2
    assert {name for _, _, name, _ in seen} == set(sanitize.names(one_kernel("gemm/08")[0].kernel))


def test_sanitizer_summaries():
    clean = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"
    assert sanitize.summary(clean, 0) == {"findings": 0, "said": "ERROR SUMMARY: 0 error"}
    assert sanitize.summary(clean, 1)["findings"] is None
    assert sanitize.summary(clean + "C[0][0] is wrong", 1)["said"] == "the program failed with code 1: C[0][0] is wrong"
    stray = "========= COMPUTE-SANITIZER\n========= Invalid __global__ write of size 4 bytes\n"
    stray += "========= ERROR SUMMARY: 3 errors"
    assert sanitize.summary(stray, 1) == {"findings": 3, "said": "Invalid __global__ write of size 4 bytes"}
    race = "========= COMPUTE-SANITIZER\n========= Race reported\n========= RACECHECK SUMMARY: 2 hazards displayed"
    assert sanitize.summary(race, 0)["findings"] == 2
    assert sanitize.summary("Segmentation fault", 139) == {"findings": None, "said": "Segmentation fault"}


class TestDoctor:
    def finding(self, part):
        return next(f for f in doctor.examine() if f.part == part)

    def test_this_machine_has_no_broken_part(self, capsys):
        assert run(capsys, "doctor")[0] == 0
        assert {f["verdict"] for f in json.loads(run(capsys, "doctor", "--json")[1])} <= set(doctor.VERDICTS)

    def test_missing_bindings(self, monkeypatch, capsys):
        def missing(name):
            raise doctor.metadata.PackageNotFoundError(name)

        monkeypatch.setattr(doctor.metadata, "version", missing)
        assert self.finding("bindings").verdict == "bad"
        assert "pip install" in self.finding("bindings").mend
        assert run(capsys, "doctor")[0] == 2

    def test_bindings_newer_than_the_driver(self, monkeypatch):
        monkeypatch.setattr("lowlevel.device.cuda.driver.driver_version", lambda: (12, 4))
        monkeypatch.setattr(doctor.metadata, "version", lambda _name: "13.0.3")
        assert "newer than the driver's CUDA 12.4" in self.finding("bindings").said
        assert "cu12" in self.finding("bindings").mend

    @pytest.mark.parametrize(("part", "name"), [("nvrtc", "nvrtc"), ("nvjitlink", "nvjitlink")])
    def test_a_missing_compiler(self, monkeypatch, part, name):
        def missing():
            raise MissingError(f"{name} is missing: pip install {name}")

        monkeypatch.setattr(f"lowlevel.toolchain.{name}.bindings", missing)
        found = self.finding(part)
        assert (found.verdict, found.mend) == ("bad", f"pip install {name}")

    def test_ptx_newer_than_the_driver_takes(self, monkeypatch):
        monkeypatch.setattr("lowlevel.device.cuda.driver.driver_version", lambda: (13, 0))
        monkeypatch.setattr("lowlevel.toolchain.nvrtc.version", lambda: (13, 2))
        found = self.finding("ptx isa")
        assert found.verdict == "warn"
        assert "9.2, the driver compiles up to 9.0" in found.said

    def test_missing_cublas(self, monkeypatch):
        def missing():
            raise MissingError("cuBLAS is missing (not found): pip install nvidia-cublas")

        monkeypatch.setattr("lowlevel.cublas.libraries.load", missing)
        assert self.finding("cublas").verdict == "absent"
        assert "nvidia-cublas" in self.finding("cublas").mend

    def test_missing_tools(self, monkeypatch):
        monkeypatch.setattr("lowlevel.toolchain.sass.disassembler", lambda: None)
        monkeypatch.setattr(doctor.shutil, "which", lambda *_, **__: None)
        for part in ("nvdisasm", "ncu", "sanitizer"):
            found = next(f for f in doctor.examine() if part in f.part)
            assert found.verdict == "absent"
            assert found.mend

    def test_counters_kept_for_administrators(self, tmp_path, monkeypatch):
        parameters = tmp_path / "params"
        parameters.write_text("RmProfilingAdminOnly: 1\n")
        assert doctor.restricted(parameters)
        assert not doctor.restricted(tmp_path / "none")
        monkeypatch.setattr(doctor.shutil, "which", lambda *_, **__: "/usr/bin/ncu")
        monkeypatch.setattr(doctor, "restricted", lambda: True)
        monkeypatch.setattr(doctor.os, "geteuid", lambda: 1000)
        assert self.finding("ncu").verdict == "warn"

    def test_an_unwritable_cache(self, monkeypatch, tmp_path):
        (tmp_path / "file").write_text("")
        monkeypatch.setenv("LOWLEVEL_CACHE", str(tmp_path / "file" / "cache"))
        assert self.finding("cache").verdict == "warn"

    def test_a_broken_driver(self, monkeypatch):
        def broken():
            raise MissingError("the CUDA driver is broken: reinstall the NVIDIA driver")

        monkeypatch.setattr("lowlevel.device.cuda.driver.probe", broken)
        found = self.finding("driver")
        assert (found.verdict, found.mend) == ("bad", "reinstall the NVIDIA driver")

    def test_no_driver_is_absent_not_bad(self, monkeypatch):
        def nothing():
            raise NoDriverError("no CUDA driver (libcuda.so.1 not found)")

        monkeypatch.setattr("lowlevel.device.cuda.driver.bindings", nothing)
        assert self.finding("driver").verdict == "absent"

    def test_a_check_that_breaks_is_a_finding(self, monkeypatch):
        def check_surprise():
            raise RuntimeError("unforeseen")

        monkeypatch.setattr(doctor, "CHECKS", (check_surprise,))
        (found,) = doctor.examine()
        assert (found.verdict, found.said) == ("bad", "RuntimeError: unforeseen")


def test_bench_without_a_gpu_says_what_is_wrong_first_and_compiles_no_library(capsys, monkeypatch):
    monkeypatch.setattr("lowlevel.commands.bench.probe", lambda: "none is here")
    assert cli.main(["bench", "--suite", "quick", "123"]) == 2
    out, err = capsys.readouterr()
    assert (out, err) == ("", "lowlevel: the suite quick has nothing of 123\n")
    assert cli.main(["bench", "library/cublas", "64", "--dtype", "bf16"]) == 0
    assert "libraries have nothing to compile" in capsys.readouterr().out
