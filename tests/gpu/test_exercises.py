"""Exercises on the GPU: a solution computes what it should, and no starter passes."""

from argparse import Namespace
from pathlib import Path

import pytest

from lowlevel.bench import BenchOptions, choose, run_bench
from lowlevel.commands import exercise as command
from lowlevel.device.cuda.driver import probe
from lowlevel.exercises import EXERCISES
from lowlevel.results import Results

pytestmark = pytest.mark.skipif(bool(probe()), reason=str(probe()))

SOLUTIONS = Path(__file__).parents[1] / "fixtures" / "solutions"


@pytest.fixture(scope="module")
def grader():
    with command.Grader(Namespace(device=0, arch=None)) as opened:
        yield opened


@pytest.mark.parametrize("file", sorted(SOLUTIONS.iterdir()), ids=lambda p: p.name)
def test_a_solution_is_solved(grader, file):
    (exercise,) = [e for e in EXERCISES if file.name.startswith(Path(e.file).stem)]
    rows = grader.grade(exercise, str(file))
    assert command.summary(rows) == "solved"


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda e: e.file)
def test_a_starter_is_not(grader, exercise):
    rows = grader.grade(exercise, str(exercise.starter))
    assert not command.passed(rows)
    result = rows[-1]
    assert result["step"] == "the result"
    right = exercise.number in (2, 3)  # these are right from the start, and slow
    assert (result["verdict"] == "ok") == right, result["said"]


def test_an_own_kernel_is_timed_beside_its_entry_and_cublas(tmp_path):
    name = f"{SOLUTIONS / '01_tile.cu'} as cuda:gemm/02_tiled"
    options = BenchOptions(
        patterns=(name, "cuda:gemm/02_tiled"), shapes="512", json_path=tmp_path / "rows.json", budget=2.0
    )
    assert len(choose(options).groups) == 1
    with (tmp_path / "table").open("w") as out:
        assert run_bench(options, out) == 0
    rows = {row.variant: row for row in Results.load(tmp_path / "rows.json").rows}
    assert {"mine:01_tile.cu", "gemm/02_tiled", "library/cublas"} <= set(rows)
    assert rows["mine:01_tile.cu"].median_us > 0
    assert rows["mine:01_tile.cu"].vs_cublas > 0


def test_an_own_kernel_with_other_numbers_is_launched_by_them(tmp_path):
    """A block of 16 x 16 threads: with the entry's own grid most elements would not be written."""
    name = f"{SOLUTIONS / '01_tile.cu'} as cuda:gemm/02_tiled BM=16 BN=16 BK=16"
    options = BenchOptions(patterns=(name,), shapes="257x129x65", json_path=tmp_path / "rows.json", budget=1.0)
    with (tmp_path / "table").open("w") as out:
        assert run_bench(options, out) == 0
