"""`lowlevel profile`: the ncu lines, what its CSV says, and a profiler that is missing or may not count."""

import json
import shlex
import subprocess
from types import SimpleNamespace

import numpy as np
import pytest
from fake_device import FakeDevice

from lowlevel import catalog, cli, doctor
from lowlevel.commands import profile, profile_target
from lowlevel.errors import LowlevelError, MissingError
from lowlevel.nsight import command, output
from lowlevel.nsight.questions import QUESTIONS, STALLS, stall_metric, stalls_of

TILED = "cuda:gemm/02_tiled[fp32,NN,32x32x32]"

CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum"
LOADS = "smsp__sass_inst_executed_op_shared_ld.sum"
LAUNCH = '"0","4242","python3.12","127.0.0.1","gemm","1","13","(32, 32, 1)","(128, 128, 1)","0","9.0"'
WHO = '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream"'
WHO += ',"Block Size","Grid Size","Device","CC"'
PREFACE = """\
==PROF== Connected to process 4242 (/usr/bin/python3.12)
==PROF== Profiling "gemm" - 0: 0%....50%....100% - 9 passes
a line of the program's own, with a comma
==PROF== Disconnected from process 4242
"""
#: `ncu --csv --page raw --print-units base`: a column a metric, units in the second line.
RAW = (
    PREFACE
    + f'{WHO},"gpu__time_duration.sum","launch__registers_per_thread","lts__t_sector_hit_rate.pct"'
    + f',"{CONFLICTS}","{LOADS}"'
    + f',"{stall_metric("barrier")}","{stall_metric("long_scoreboard")}","{stall_metric("selected")}"\n'
    + '"","","","","","","","","","","","ns","register/thread","%","","inst","inst","inst","inst"\n'
    + f'{LAUNCH},"16,540,128","40","87.25","67,108,864","33,554,432","1.50","4.50","1.00"\n'
    + f'{LAUNCH.replace("0", "1", 1)},"16,540,130","40","(!) n/a","67,108,864","33,554,432","1.50","4.50","1.00"\n'
)
#: `ncu --csv --page details`: a line a metric, advice between them, and units with prefixes.
DETAILS = (
    PREFACE
    + f'{WHO},"Section Name","Metric Name","Metric Unit","Metric Value","Rule Name","Rule Type","Rule Description"\n'
    + f'{LAUNCH},"GPU Speed Of Light Throughput","Duration","ms","16.54","","",""\n'
    + f'{LAUNCH},"SpeedOfLight","","","","SOLBottleneck","OPT","Memory is utilized more, see, there"\n'
    + f'{LAUNCH},"Command line profiler metrics","dram__bytes_read.sum","Mbyte","1,250.5","","",""\n'
    + f'{LAUNCH},"Occupancy","Achieved Occupancy","%","99.81","","",""\n'
    + f'{LAUNCH},"Occupancy","Cluster Occupancy","%","n/a","","",""\n'
)
#: `ncu --page source --print-source sass --csv`: the kernel's name, the columns, an instruction a line.
SOURCE = """\
"Kernel Name","gemm"
"#","Address","Source","Instructions Executed","# Samples","Instructions Executed","Address Space",\
"L1 Wavefronts Shared Excessive","L1 Wavefronts Shared","L1 Wavefronts Shared Ideal"
"1","7f10","      LDG.E R2, [R4.64]","100","7","100","Global","0","0","0"
"2","7f20","      STS [R7], R2","1,000","7","1,000","Shared","0","1,000","1,000"
"3","7f30","      LDS R3, [R8]","1,000","7","1,000","Shared","1,000","2,000","1,000"
"4","7f40","      LDS.128 R12, [R9]","500","7","500","Shared","14,000","16,000","2,000"
"5","7f50","      EXIT","10","7","10","","","",""
"""


class TestOutput:
    def test_what_is_printed_after_the_table_is_no_line_of_it(self):
        assert len(output.launches(RAW + "lowlevel: a warning, after all\n==WARNING== 1, 2\n")) == 2

    def test_numbers(self):
        assert output.number("1,234,567.5") == 1234567.5
        assert output.number("(!) n/a") is None
        assert output.number("") is None

    def test_the_raw_page(self):
        first, second = output.launches(RAW)
        assert (first.kernel, first.grid, first.block) == ("gemm", "(128, 128, 1)", "(32, 32, 1)")
        assert first.metrics["gpu__time_duration.sum"] == 16540128
        assert first.metrics[CONFLICTS] == 67108864
        assert "CC" not in first.metrics
        assert "lts__t_sector_hit_rate.pct" not in second.metrics
        assert output.mean([first, second])["gpu__time_duration.sum"] == 16540129
        assert output.mean([first, second])["lts__t_sector_hit_rate.pct"] == 87.25

    def test_units_with_a_prefix(self):
        text = RAW.replace(',"ns",', ',"us",')
        assert output.launches(text)[0].metrics["gpu__time_duration.sum"] == 16540128e3

    def test_the_details_page(self):
        (launch,) = output.launches(DETAILS)
        assert launch.metrics == {"Duration": 16.54e6, "dram__bytes_read.sum": 1250.5e6, "Achieved Occupancy": 99.81}
        assert launch.kernel == "gemm"

    def test_a_raw_page_without_a_line_of_units(self):
        text = "\n".join(line for line in RAW.splitlines() if not line.startswith('"",'))
        assert len(output.launches(text)) == 2

    def test_no_table_is_one_line(self):
        with pytest.raises(LowlevelError, match=r"ncu printed no table; No kernels were profiled\.$"):
            output.launches("==PROF== Connected\n==ERROR== No kernels were profiled.\n==PROF== Disconnected\n")
        with pytest.raises(LowlevelError, match="it said nothing"):
            output.launches("")

    def test_the_summary_computes_and_explains(self):
        rows = output.summary(QUESTIONS["overview"], output.launches(RAW)[0].metrics)
        by = {row["figure"]: row for row in rows}
        assert (by["duration"]["value"], by["duration"]["unit"]) == (pytest.approx(16540.128), "us")
        assert by["load conflicts a request"]["value"] == 2.0
        assert by["registers"]["value"] == 40
        assert by["DRAM throughput"]["value"] == "not measured"
        assert all(row["meaning"] for row in rows)
        stalls = [(r["figure"], r["value"]) for r in rows if r["figure"].startswith("stalled")]
        assert stalls == [("stalled: long_scoreboard", 75.0), ("stalled: barrier", 25.0)]

    def test_a_kernel_without_shared_loads_has_no_ratio(self):
        rows = output.summary(QUESTIONS["shared"], {CONFLICTS: 0.0, LOADS: 0.0})
        by = {row["figure"]: row["value"] for row in rows}
        assert by["load conflicts a request"] == "none"
        assert by["loads"] == 0.0

    def test_only_the_most_frequent_stalls_are_shown(self):
        metrics = {stall_metric(reason): float(i) for i, reason in enumerate(STALLS)}
        rows = output.summary(QUESTIONS["stalls"], metrics, most=3)
        assert len([r for r in rows if r["figure"].startswith("stalled")]) == 3
        assert stalls_of(metrics)[0] == ("wait", 18.0)
        assert "selected" not in dict(stalls_of(metrics))

    def test_instructions_with_conflicts_the_worst_first(self):
        lines = output.conflicts(PREFACE + SOURCE)
        assert [(line.address, line.excess) for line in lines] == [("7f40", 14000), ("7f30", 1000)]
        assert lines[0].sass == "LDS.128 R12, [R9]"
        assert (lines[0].executed, lines[0].wavefronts, lines[0].ideal) == (500, 16000, 2000)

    def test_a_report_without_counts_of_instructions_is_refused(self):
        with pytest.raises(LowlevelError, match="record it with --section SourceCounters"):
            output.conflicts('"Kernel Name","gemm"\n"Address","Source","# Samples"\n"7f","EXIT","1"\n')

    def test_what_ncu_complains_of(self):
        text = "==ERROR== Failed to find metric smsp__none.sum\n"
        text += "==ERROR== Failed to find metric regex:^gone__x\\.(sum|max)$\n"
        assert output.unknown_metrics(text) == ["smsp__none.sum", "gone__x"]
        assert output.lacks_permission("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission ...")
        assert output.last_words("x\n==ERROR== Unknown option\n==PROF== bye\n") == "Unknown option"


class TestCommand:
    def line(self, capsys, *words):
        assert cli.main(["profile", *words, "--print"]) == 0
        return capsys.readouterr().out

    def test_the_line_says_everything(self, capsys):
        line = self.line(capsys, "gemm/02_tiled", "4096", "--what", "shared")
        assert "--clock-control none" in line
        assert "--kernel-name gemm --launch-skip 3 --launch-count 1" in line
        assert f"-m lowlevel.commands.profile_target '{TILED}' 4096 --launches 4" in line
        assert CONFLICTS in line
        assert "dram__bytes_read.sum" not in line
        assert "--csv --page raw --print-units base" in line

    def test_launches_that_are_skipped_and_counted_are_launched(self, capsys):
        line = self.line(capsys, "gemm/02_tiled", "64", "--warm-up", "5", "--launches", "2", "--arch", "sm_80")
        assert "--launch-skip 5 --launch-count 2" in line
        assert "--launches 7" in line
        assert line.rstrip().endswith("--arch sm_80")

    def test_source_and_reports(self, capsys):
        line = self.line(capsys, "gemm/02_tiled", "64", "--source")
        assert "--section SourceCounters" in line
        assert "--page source --print-source sass --csv" in line
        assert "--set full --export x.ncu-rep" in self.line(capsys, "gemm/02_tiled", "64", "--export", "x.ncu-rep")
        assert "--import x.ncu-rep --page source" in self.line(capsys, "--import", "x.ncu-rep")

    def test_the_lines_as_json(self, capsys):
        words = ("gemm/02_tiled", "64", "--source")
        lines = json.loads(self.line(capsys, *words, "--json"))["lines"]
        assert [shlex.join(line) for line in lines] == self.line(capsys, *words).splitlines()
        assert len(json.loads(self.line(capsys, "--import", "x.ncu-rep", "--json"))["lines"]) == 1
        assert cli.main(["profile", *words, "--print", "--markdown"]) == 2

    def test_a_kernel_is_taken_in_the_configuration_that_suits_the_shape(self, capsys):
        assert "128x256x16" in self.line(capsys, "gemm/08", "4096")
        assert "64x128x64" in self.line(capsys, "gemm/08", "1024")
        assert "128x256x16" in self.line(capsys, one("gemm/08"), "1024")

    def test_a_kernel_of_ones_own_takes_a_place(self, capsys, tmp_path):
        mine = tmp_path / "my.cu"
        mine.write_text("// mine")
        line = self.line(capsys, str(mine), "64", "--as", "gemm/02")
        assert f"'{mine} as cuda:gemm/02_tiled[fp32,NN,32x32x32]' 64" in line

    def test_a_probe_has_no_shape(self, capsys):
        assert "programmatic_pair[int32" in self.line(capsys, "probe/programmatic_pair")

    def test_each_launch_of_a_call_can_be_chosen(self, capsys):
        steps = catalog.find(one("probe/programmatic_pair")).kernel.steps
        assert len(steps) > 1
        assert f"--kernel-name {steps[-1].entry} " in self.line(capsys, "probe/programmatic_pair")
        assert f"--kernel-name {steps[0].entry} " in self.line(
            capsys, "probe/programmatic_pair", "--entry", steps[0].entry
        )

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            (["gemm/*", "64"], "names several kernels"),
            (["gemm/02_tiled", "64x64"], "takes shapes MxNxK"),
            (["gemm/02_tiled", "64,128"], "takes one shape"),
            (["gemm/02_tiled", "64", "--entry", "other"], "launches no 'other'; it launches gemm"),
            (["gemm/02_tiled", "64", "--launches", "0"], "profiles nothing"),
            (["gemm/02_tiled", "banana"], "is not a shape"),
            ([], "name a kernel"),
            (["--import", "no/such.ncu-rep"], "no report no/such.ncu-rep"),
        ],
    )
    def test_wrong_words_are_one_line(self, capsys, words, said):
        assert cli.main(["profile", *words]) == 2
        err = capsys.readouterr().err
        assert said in err
        assert len(err.splitlines()) == 1

    def test_a_missing_profiler_is_one_line_that_says_where(self, monkeypatch, capsys):
        monkeypatch.setattr(doctor, "ncu", lambda: None)
        assert cli.main(["profile", "gemm/02_tiled", "64"]) == 2
        assert capsys.readouterr().err == (
            "lowlevel: Nsight Compute is not on the PATH: install NVIDIA Nsight Compute "
            "(developer.nvidia.com/nsight-compute)\n"
        )

    def test_help_names_every_metric(self):
        text = profile.questions_text()
        for question in QUESTIONS.values():
            assert all(name in text for name in question.metrics if not name.endswith("per_issue_active.ratio"))

    def test_every_stall_has_a_meaning_and_every_metric_a_rollup(self):
        assert all(STALLS.values())
        for question in QUESTIONS.values():
            assert all("." in name or name.startswith("launch__") for name in question.metrics)


def one(name: str) -> str:
    return profile.one(name).name


class FakeNcu:
    """Stands for ncu: a text for each run, in turn; remembers the lines."""

    def __init__(self, monkeypatch, *texts, code=0):
        self.texts, self.code, self.lines = list(texts), code, []
        monkeypatch.setattr(doctor, "ncu", lambda: "ncu")
        monkeypatch.setattr(profile, "probe", lambda: None)
        monkeypatch.setattr(command.subprocess, "run", self)

    def __call__(self, line, **_):
        self.lines.append(line)
        return SimpleNamespace(stdout=self.texts.pop(0), stderr="", returncode=self.code)


def test_the_summary_is_printed(monkeypatch, capsys):
    FakeNcu(monkeypatch, RAW, RAW)
    assert cli.main(["profile", "gemm/02_tiled", "4096"]) == 0
    out = capsys.readouterr().out
    assert "grid (128, 128, 1), block (32, 32, 1), mean of 2 launches" in out
    assert "16,540" in out
    assert STALLS["long_scoreboard"] in out
    assert cli.main(["profile", "gemm/02_tiled", "4096", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["figure"] == "duration"


def test_conflicts_are_printed_by_instruction(monkeypatch, capsys):
    clean = SOURCE.replace('"16,000","2,000"', '"2,000","2,000"').replace('"2,000","1,000"', '"1,000","1,000"')
    ncu = FakeNcu(monkeypatch, "==PROF== done\n", SOURCE, "", clean)
    assert cli.main(["profile", "gemm/02_tiled", "4096", "--source"]) == 0
    out = capsys.readouterr().out
    assert out.index("LDS.128 R12") < out.index("LDS R3")
    assert "8.00" in out
    assert "STS" not in out
    exported, imported = (line[line.index(o) + 1] for line, o in zip(ncu.lines, ("--export", "--import"), strict=True))
    assert exported == imported
    assert cli.main(["profile", "gemm/02_tiled", "4096", "--source"]) == 0
    assert "No instruction has a shared-memory bank conflict." in capsys.readouterr().out


def test_counters_that_may_not_be_read_are_the_doctors_words(monkeypatch, capsys):
    FakeNcu(monkeypatch, "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission\n", code=1)
    assert cli.main(["profile", "gemm/02_tiled", "64"]) == 2
    err = capsys.readouterr().err
    assert doctor.COUNTERS_KEPT in err
    assert "NVreg_RestrictProfilingToAdminUsers=0" in err
    assert len(err.splitlines()) == 1


def test_a_profiler_that_fails_is_one_line(monkeypatch, capsys):
    FakeNcu(monkeypatch, "==ERROR== The application returned an error code (2).\n", code=2)
    assert cli.main(["profile", "gemm/02_tiled", "64"]) == 1
    assert "ncu ended with code 2: The application returned an error code" in capsys.readouterr().err

    def hang(line, **_):
        raise subprocess.TimeoutExpired(line, 1)

    monkeypatch.setattr(command.subprocess, "run", hang)
    assert cli.main(["profile", "gemm/02_tiled", "64"]) == 1
    assert "did not end" in capsys.readouterr().err

    def gone(line, **_):
        raise FileNotFoundError(2, "No such file")

    monkeypatch.setattr(command.subprocess, "run", gone)
    with pytest.raises(MissingError, match="cannot run ncu: No such file"):
        command.run(["ncu"])


def test_a_metric_that_the_gpu_does_not_have_is_left_out(monkeypatch, capsys):
    ncu = FakeNcu(monkeypatch, f"==ERROR== Failed to find metric {stall_metric('gmma')}\n", RAW)
    assert cli.main(["profile", "gemm/02_tiled", "64"]) == 0
    captured = capsys.readouterr()
    assert f"has no {stall_metric('gmma')}" in captured.err
    first, second = (line[line.index("--metrics") + 1].split(",") for line in ncu.lines)
    assert set(first) - set(second) == {stall_metric("gmma")}
    ncu.texts = ["==ERROR== Failed to find metric something_else\n"]
    assert cli.main(["profile", "gemm/02_tiled", "64"]) == 1
    assert "ncu does not know something_else" in capsys.readouterr().err


def test_the_target_launches_the_variant_on_real_operands(monkeypatch):
    device, seen = FakeDevice(), []
    packet = SimpleNamespace(launch=lambda stream: seen.append(stream))
    monkeypatch.setattr(device, "load", lambda _: SimpleNamespace(function=lambda e: e, arch="sm_90"), raising=False)
    monkeypatch.setattr(device, "bind", lambda function, shape, arguments: packet, raising=False)
    variant = catalog.find(TILED)
    problem = profile.make_problem(variant, (40, 24, 16))
    profile_target.launch(device, variant, problem, None, 4)
    assert len(seen) == 4
    buffers = profile_target.operands(device, problem)
    assert set(buffers) == {"A", "B", "C"}
    assert np.array_equal(buffers["A"].download(np.float32, (40, 16)), problem.inputs(0)["A"])


def test_the_target_without_a_driver_is_one_line(monkeypatch, capsys):
    def missing(_ordinal):
        raise MissingError("no CUDA driver")

    monkeypatch.setattr("lowlevel.device.cuda.device.open_device", missing)
    assert profile_target.main([TILED, "64"]) == 2
    assert capsys.readouterr().err == "lowlevel: no CUDA driver\n"
