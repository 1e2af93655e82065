"""Two kernels compared: sources without their headers, and what the compiler says of both."""

import json
from dataclasses import replace

import pytest

from lowlevel import cli
from lowlevel.commands import study_diff
from lowlevel.errors import UsageError
from lowlevel.study import diff
from lowlevel.toolchain import sass

needs_nvdisasm = pytest.mark.skipif(sass.disassembler() is None, reason="no nvdisasm")


def run(capsys, *words) -> tuple[int, str, str]:
    code = cli.main(["study", "diff", *words])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_a_pair_is_of_one_language_type_and_layout():
    first, second = diff.pair("gemm/02", "gemm/04")
    assert (first.kernel.label, second.kernel.label) == ("cuda:gemm/02_tiled", "cuda:gemm/04_register_tile")
    first, second = diff.pair("gemm/02", "ptx:gemm/04")
    assert (first.kernel.language, second.kernel.language) == ("ptx", "ptx")
    assert (first.type, first.layout) == (second.type, second.layout)
    assert diff.pair("cuda:gemm/02", "ptx:gemm/02")[0].kernel.language == "cuda"


def test_languages_of_one_kernel_are_compared_in_one_configuration():
    first, second = diff.pair("cuda:gemm/13", "ptx:gemm/13")
    assert (first.kernel.language, second.kernel.language) == ("cuda", "ptx")
    assert (first.type, first.layout, first.config) == (second.type, second.layout, second.config)
    assert diff.pair("ptx:gemm/13", "gemm/13")[1].name == first.name
    other = next(c for c in first.kernel.configs if c != second.config)
    named = first.with_config(**other).name
    assert diff.pair(named, "ptx:gemm/13")[0].name == named


def test_a_bracket_chooses():
    first, second = diff.pair("gemm/14", "gemm/14[NN]")
    assert first.kernel is second.kernel
    assert (first.layout, second.layout) == (first.kernel.layouts[0], "NN")
    assert first.layout != "NN"
    assert (first.type, first.config) == (second.type, second.config)
    first, second = diff.pair("gemm/13[fp16,TN]", "gemm/14")
    assert (second.type.name, second.layout) == ("fp16", "TN")


def test_the_usual_architectures_are_those_that_both_can_be(monkeypatch):
    first, second = diff.pair("gemm/13", "gemm/14")
    assert diff.shared_archs(first, second) == ("sm_80", "sm_90a")
    newer = replace(first, kernel=replace(first.kernel, archs=("sm_90a",)))
    assert diff.shared_archs(newer, second) == ("sm_90a",)
    monkeypatch.setattr(diff, "USUAL_ARCHS", ("sm_80",))
    with pytest.raises(UsageError, match=r"share none of sm_80; name one with --arch"):
        diff.shared_archs(newer, second)


def test_headers_are_left_out_unless_asked_for():
    first, second = (v.kernel for v in diff.pair("gemm/04", "gemm/05"))
    short, whole = diff.sources(first, second), diff.sources(first, second, header=True)
    assert short[:2] == ["--- cu/gemm/04_register_tile.cu", "+++ cu/gemm/05_large_register_tile.cu"]
    assert not any("// Idea" in line for line in short)
    assert any(line.startswith("+// Idea") for line in whole)
    assert any("Epilogue epilogue" in line for line in short)


def test_a_header_ends_at_the_first_line_of_code():
    assert diff.without_header(["// a", "", "// b", "int x;  // c", "// d"]) == ["int x;  // c", "// d"]
    assert diff.without_header(["// only"]) == []


def test_colours():
    shown = study_diff.coloured(["+a", "-b", "@@", " c", ""])
    assert shown == ["\x1b[32m+a\x1b[0m", "\x1b[31m-b\x1b[0m", "\x1b[36m@@\x1b[0m", " c", ""]


@pytest.mark.parametrize(
    ("choice", "terminal", "wanted"),
    [("auto", True, True), ("auto", False, False), ("never", True, False), ("always", False, True)],
)
def test_colours_are_for_terminals(monkeypatch, choice, terminal, wanted):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr("sys.stdout.isatty", lambda: terminal)
    assert study_diff.wants_colour(choice) is wanted
    monkeypatch.setenv("NO_COLOR", "1")
    assert study_diff.wants_colour(choice) is (choice == "always")


@needs_nvdisasm
class TestTheTable:
    def test_what_the_compiler_says(self, capsys):
        code, out, _ = run(capsys, "gemm/04", "gemm/05", "--json", "--arch", "sm_80")
        assert code == 0
        found = {row["what"]: row for row in json.loads(out)["table"]}
        shared = found["shared bytes a block"]
        assert (shared["first"], shared["second"], shared["change"]) == (4352, 8704, "+4352")
        fmas = found["instructions: multiply-add"]
        assert (fmas["first"], fmas["second"]) == (128, 512)
        assert found["bytes spilled"]["change"] == ""

    def test_text(self, capsys):
        code, out, _ = run(capsys, "gemm/04", "gemm/05", "--arch", "sm_80,sm_90a")
        assert code == 0
        assert "+++ cu/gemm/05_large_register_tile.cu" in out
        assert "occupancy, %" in out
        assert "\x1b[" not in out

    def test_a_kernel_beside_itself(self, capsys):
        _, out, _ = run(capsys, "gemm/04", "gemm/04", "--arch", "sm_80")
        assert "The sources are the same." in out
        assert "instructions:" not in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["gemm/04", "gemm/99"], "no variant 'gemm/99'"),
        (["gemm", "gemm/02"], "names several kernels"),
        (["gemm/04", "gemm/05", "--arch", "sm_1"], "unknown architecture"),
        (["gemm/10", "gemm/11", "--arch", "sm_75"], "written for sm_80; sm_75 is older"),
        (["gemm/14", "gemm/14[XX]"], "no 'XX'; a bracket takes"),
    ],
)
def test_wrong_words_are_one_line(capsys, words, said):
    code, _, err = run(capsys, *words)
    assert code == 2
    assert said in err
    assert len(err.splitlines()) == 1
