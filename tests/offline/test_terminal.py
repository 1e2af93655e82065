"""Tables on a terminal: as wide as it is, with nothing lost and numbers whole; in a file as they always were."""

import re
import sys

import pytest
from tabulate import tabulate

from lowlevel import report, terminal
from lowlevel.__main__ import main
from lowlevel.results import Row

COLUMNS = {
    "variant": ["cuda:gemm/02_tiled[fp32,NN,32x32x32]", "ptx:gemm/02_tiled[fp32,NN,32x32x32]"],
    "registers": ["32", "29"],
    "spills": ["0", "0"],
    "remarks": ["", ""],
    "instructions": ["STS, LDS, FFMA, BAR", "STS, LDS, FFMA, BAR, IMAD"],
}


def lines_of(columns, width, right=()):
    lines = terminal.fitted(columns, width, right).splitlines()
    assert max(map(len, lines)) <= width
    return lines


@pytest.fixture
def on_a_terminal(monkeypatch, capsys):
    """Standard output is a terminal of that many columns."""

    def columns(number):
        monkeypatch.setenv("COLUMNS", str(number))
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True)

    return columns


@pytest.mark.parametrize("width", [None, 1000])
def test_a_table_that_fits_is_tabulates(width):
    assert terminal.fitted(COLUMNS, width) == tabulate(COLUMNS, headers="keys", disable_numparse=True)
    assert terminal.fitted({}, width) == ""


def test_what_no_row_fills_goes_first():
    lines = lines_of(COLUMNS, 90)
    assert lines[0].split() == ["variant", "registers", "spills", "instructions"]
    assert len(lines) == 4


def test_then_what_all_rows_have_in_common_is_said_once():
    lines = lines_of(COLUMNS, 75)
    assert lines[0].split() == ["variant", "registers", "instructions"]
    assert lines[-2:] == ["", "all: spills 0"]
    assert len(lines) == 6


def test_the_first_column_and_a_single_row_are_said_of_each():
    again = {"variant": ["gemm/02_tiled"] * 2, "reason": ["too many registers", "too much shared memory"]}
    assert lines_of(again, 30)[2].startswith("gemm/02_tiled  ")
    one = {heading: cells[:1] for heading, cells in COLUMNS.items()}
    assert not any("all:" in line for line in lines_of(one, 60))


def test_then_cells_are_broken_after_commas_and_spaces():
    lines = lines_of(COLUMNS, 60)
    assert lines[2:4] == [
        "cuda:gemm/02_tiled[fp32,  32         STS, LDS, FFMA, BAR",
        "NN,32x32x32]",
    ]
    assert lines[-1] == "all: spills 0"


@pytest.mark.parametrize("width", range(43, 130))
def test_nothing_is_lost_and_numbers_stay_whole(width):
    """Whatever the width: each cell can be read down its column, and what is above it there is its heading."""
    columns = {**COLUMNS, "us": ["12345.6", "7.8"]}
    lines = lines_of(columns, width, right=("us",))
    text = " ".join(lines)
    for number in ("12345.6", "7.8", "32x32x32", "fp32"):
        assert re.search(rf"(?<![\w.]){re.escape(number)}(?![\w.])", text), number
    letters = sorted("".join(lines[2:]).replace(" ", "").replace("-", ""))
    kept = [c for h, cells in columns.items() for c in cells if f"all: {h}" not in text]
    once = ["all:spills0"] if "all: spills" in text else []
    assert letters == sorted("".join([*kept, *once]).replace(" ", ""))


def test_numbers_are_aligned_at_the_right_there_too():
    columns = {"variant": ["one two three", "four"], "us": ["12.5", "7.5"]}
    assert terminal.fitted(columns, 13, right=("us",)).splitlines()[2:] == ["one two  12.5", "three", "four      7.5"]


def test_a_longer_word_than_the_terminal_stays_whole():
    assert terminal.fitted({"us": ["12345.6789", "1"]}, 5).splitlines() == ["us", "-" * 10, "12345.6789", "1"]


def test_a_message_of_several_lines_keeps_them():
    assert terminal.wrapped("error: one\nand two more words", 12) == ["error: one", "and two more", "words"]


def test_commands_fit_the_terminal(on_a_terminal, capsys):
    on_a_terminal(80)
    assert main(["list", "gemm/*"]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


@pytest.mark.parametrize("option", ["--json", "--markdown"])
def test_json_and_markdown_are_the_same_on_a_terminal(option, on_a_terminal, capsys):
    main(["list", "gemm/*", option])
    away = capsys.readouterr().out
    on_a_terminal(80)
    main(["list", "gemm/*", option])
    assert capsys.readouterr().out == away


def test_a_pipe_has_no_width(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    assert terminal.width(sys.stdout) is None
    main(["list", "gemm/*"])
    assert max(map(len, capsys.readouterr().out.splitlines())) > 200


def test_measured_rows_fit_too():
    rows = [Row("gemm", "gemm/08_warp_tile", language="cuda", dtype="fp32", m=64, n=64, k=64) for _ in range(2)]
    rows[1].status, rows[1].reason = "hang", "no answer in 90 s; killed, and the others start again without it"
    rows[0].median_us = 1234.5
    lines = report.tables(rows, width=60).splitlines()
    assert max(map(len, lines)) <= 60
    assert re.search(r" 1234\.5\b", "\n".join(lines))
