"""Every exercise: its starter fails, its solution passes, and its header says what is asked."""

import json
from argparse import Namespace
from pathlib import Path

import pytest

from lowlevel import catalog, cli, exercises, gpu_worker, hardware
from lowlevel.commands import exercise as command
from lowlevel.errors import DeviceError, MissingError
from lowlevel.exercises import EXERCISES
from lowlevel.problems.make import make_problem
from lowlevel.problems.shapes import parse_shape
from lowlevel.toolchain import sass
from lowlevel.verify import Verdict

SOLUTIONS = Path(__file__).parents[1] / "fixtures" / "solutions"


def solutions(exercise) -> list[Path]:
    """The solution of the starter's name, and others that begin with it."""
    return sorted(SOLUTIONS.glob(f"{Path(exercise.file).stem}*"))


def each(function):
    return pytest.mark.parametrize("exercise", EXERCISES, ids=lambda e: e.file)(function)


ARCHS = ("sm_80", "sm_90a")
ALL_SOLUTIONS = [(e, file) for e in EXERCISES for file in solutions(e)]


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch, tmp_path):
    """In an empty folder, without a GPU."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "probe", lambda: "no CUDA driver")
    yield
    catalog.own_kernel_of.cache_clear()


def run(capsys, *words) -> tuple[int, str, str]:
    code = cli.main(["exercise", *words])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def grade(exercise, file, arch="sm_90a") -> dict[str, str]:
    """step -> verdict."""
    with command.Grader(Namespace(device=0, arch=arch)) as grader:
        return {row["step"]: row["verdict"] for row in grader.grade(exercise, str(file))}


@pytest.mark.parametrize("arch", ARCHS)
@each
def test_the_starter_compiles_and_fails(exercise, arch):
    verdicts = grade(exercise, exercise.starter, arch)
    assert verdicts["compiles"] == "ok"
    assert "missing" in verdicts.values()


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize(("exercise", "file"), ALL_SOLUTIONS, ids=[f.name for _, f in ALL_SOLUTIONS])
def test_the_solution_passes_as_far_as_can_be_seen(exercise, file, arch):
    verdicts = grade(exercise, file, arch)
    assert verdicts.pop("the result") == "not checked"
    assert set(verdicts.values()) == {"ok"}


@each
class TestEachExercise:
    def test_it_has_a_starter_and_a_solution(self, exercise):
        assert exercise.starter.is_file()
        assert SOLUTIONS / exercise.file in solutions(exercise)
        assert exercise.file.startswith(f"{exercise.number:02}_")

    def test_its_kernel_and_shapes_exist(self, exercise):
        (kernel,) = [k for k in catalog.kernels() if k.label == exercise.stands_for]
        for variant in kernel.variants():
            labels = [make_problem(variant, shape).label for shape in parse_shape(exercise.shapes)]
            assert any(label.startswith("257x129") for label in labels)  # whole tiles alone hide missing guards
            assert len(set(labels)) == len(labels) >= 6
            assert make_problem(variant, parse_shape(exercise.bench)[0])

    def test_its_header_poses_it(self, exercise):
        lines = exercise.starter.read_text().splitlines()
        assert lines[0] == f"// Exercise {exercise.number}: {_sentence(exercise.title)}"
        header = "\n".join(line for line in lines if line.startswith("//"))
        for word in ("Task", "As", "Given", "Read", "Check", "Passing"):
            assert f"\n// {word} " in header, word
        assert exercise.stands_for.removeprefix("cuda:") in header
        assert f"lowlevel exercise {exercise.number}\n" in header
        assert max(map(len, lines)) <= 120

    def test_what_its_header_names_can_be_read(self, exercise):
        words = exercise.starter.read_text().replace(";", " ").replace(",", " ").replace(": ", " ").split()
        named = [w.rstrip(".") for w in words if w.startswith(("cu/", "ptx/", "docs/"))]
        assert named
        for name in named:
            assert (exercises.paths.kernel_root() / name).is_file(), name

    def test_the_checks_of_another_structure_fail(self, exercise):
        """A check that holds for an empty kernel would check nothing."""
        nothing = exercises.Seen(sass.instructions("/*0000*/ EXIT ;"), ".entry gemm ( ) { ret; }")
        assert not any(check.holds(nothing) for check in exercise.checks)


def _sentence(title: str) -> str:
    return f"{title}."


def test_numbers_are_in_order():
    assert [e.number for e in EXERCISES] == list(range(1, len(EXERCISES) + 1))


def test_every_starter_and_every_solution_belongs_to_an_exercise():
    assert {p.name for p in exercises.paths.exercises_root().iterdir()} == {e.file for e in EXERCISES}
    assert {p for e in EXERCISES for p in solutions(e)} == set(SOLUTIONS.iterdir())


def test_rows_that_only_make_the_tile_taller_do_not_cure(tmp_path):
    """tile[33][32] takes as many bytes as tile[32][33], and helps nothing."""
    text = (SOLUTIONS / "02_bank_conflicts.cu").read_text()
    (tmp_path / "taller.cu").write_text(text.replace("tile[SIDE][SIDE + WORD]", "tile[SIDE + 1][SIDE]"))
    assert "missing" in grade(EXERCISES[1], "taller.cu").values()


def test_rows_an_even_number_of_words_apart_do_not_cure(tmp_path):
    """Two words more in each row leave two of a column's words in every other bank."""
    text = (SOLUTIONS / "02_bank_conflicts.cu").read_text()
    (tmp_path / "even.cu").write_text(text.replace("SIDE + WORD]", "SIDE + 2]"))
    assert "missing" in grade(EXERCISES[1], "even.cu").values()


def test_one_barrier_is_not_two(tmp_path):
    text = (SOLUTIONS / "01_tile.cu").read_text()
    (tmp_path / "racy.cu").write_text(text.replace("__syncthreads();\n", "", 1))
    assert "missing" in grade(EXERCISES[0], "racy.cu").values()


def test_a_guard_in_a_comment_is_no_guard(tmp_path):
    text = (SOLUTIONS / "05_tail_guard.ptx").read_text()
    (tmp_path / "comment.ptx").write_text(
        text.replace("    setp.ge.s32   %outside_m", "    // setp.ge.s32   %outside_m")
    )
    assert "missing" in grade(EXERCISES[4], "comment.ptx").values()


class TestCommand:
    def test_the_list_says_how_far_one_is(self, capsys):
        states = lambda: [row["state"] for row in json.loads(run(capsys, "--json")[1])]  # noqa: E731
        assert states() == [f"not started: lowlevel exercise {e.number} --start" for e in EXERCISES]
        run(capsys, "1", "--start")
        Path("04_inner_loop.ptx").write_text((SOLUTIONS / "04_inner_loop.ptx").read_text())
        first, second, _, fourth, _ = states()
        assert first.startswith("not solved yet: both tiles are stored")
        assert second.startswith("not started")
        assert fourth == "as far as can be seen here it is right; the result could not be checked"
        code, out, _ = run(capsys)
        assert code == 0
        assert all(e.title in out for e in EXERCISES)

    def test_start_copies_and_never_overwrites(self, capsys):
        code, out, _ = run(capsys, "1", "--start")
        assert code == 0
        assert "lowlevel exercise 1" in out
        assert Path("01_tile.cu").read_text() == EXERCISES[0].starter.read_text()
        Path("01_tile.cu").write_text("mine")
        code, _, err = run(capsys, "1", "--start")
        assert code == 2
        assert "01_tile.cu is here already" in err
        assert Path("01_tile.cu").read_text() == "mine"
        assert run(capsys, "1", "other.cu", "--start")[0] == 0
        assert Path("other.cu").is_file()

    def test_a_starter_is_not_solved_and_a_solution_names_the_bench(self, capsys):
        code, out, _ = run(capsys, "1", str(EXERCISES[0].starter))
        assert code == 1
        assert "not solved yet" in out
        assert "bench" not in out
        Path("01_tile.cu").write_text((SOLUTIONS / "01_tile.cu").read_text())
        code, out, _ = run(capsys, "1")
        assert code == 0
        assert "not checked  no GPU: no CUDA driver" in out
        assert "the result could not be checked" in out
        assert "lowlevel bench 01_tile.cu --as cuda:gemm/02_tiled 1024" in out

    def test_the_bench_command_works(self, capsys, monkeypatch):
        monkeypatch.setattr("lowlevel.commands.bench.probe", lambda: "no CUDA driver")
        Path("01_tile.cu").write_text((SOLUTIONS / "01_tile.cu").read_text())
        command_ = EXERCISES[0].bench_command("01_tile.cu").split()
        assert cli.main(command_[1:]) == 0
        assert "mine:01_tile.cu[" in capsys.readouterr().out

    def test_a_file_that_does_not_compile(self, capsys):
        Path("01_tile.cu").write_text("\n__device__ int x = y;\n")
        code, out, _ = run(capsys, "1")
        assert code == 1
        assert '01_tile.cu:2: error: identifier "y" is undefined' in out

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            (("9",), "no exercise 9; there are 1 to 5"),
            (("1",), "no file '01_tile.cu'; `lowlevel exercise 1 --start` copies the starter here"),
            (("1", "gone.cu"), "no file 'gone.cu'"),
            (("4", "01.cu"), "exercise 4 is about a .ptx file, not '01.cu'"),
            (("--start",), "--start needs a number"),
            (("1", "no/where.cu", "--start"), "cannot write no/where.cu: No such file or directory"),
            (("1", "01.cu", "--arch", "banana"), "unknown architecture 'banana'"),
        ],
    )
    def test_wrong_input_is_one_line_and_exit_code_2(self, capsys, words, said):
        Path("01.cu").write_text("")
        code, _, err = run(capsys, *words)
        assert code == 2
        assert said in err
        assert len(err.splitlines()) == 1

    def test_without_a_disassembler_the_structure_is_not_checked(self, capsys, monkeypatch):
        def missing(_cubin):
            raise MissingError("nvdisasm is missing")

        monkeypatch.setattr(exercises.sass, "sass", missing)
        code, out, _ = run(capsys, "1", str(SOLUTIONS / "01_tile.cu"))
        assert code == 0
        assert "the structure and the result could not be checked" in out


class Child:
    """Stands in for the process that owns the GPU; `verdicts` are given out in turn, then all is well."""

    verdicts: list = []
    closed = 0

    def __init__(self, *_):
        self.calls = 0

    def call(self, function, *args, deadline):
        if function is gpu_worker.limits:
            return hardware.typical("sm_80")
        self.calls += 1
        verdict = type(self).verdicts.pop(0) if type(self).verdicts else Verdict(True)
        if isinstance(verdict, Exception):
            raise verdict
        return verdict

    def close(self):
        type(self).closed += 1


class TestWithAGpu:
    @pytest.fixture(autouse=True)
    def child(self, monkeypatch):
        monkeypatch.setattr(command, "probe", lambda: None)
        monkeypatch.setattr(command, "Worker", Child)
        monkeypatch.setattr(Child, "verdicts", [])
        monkeypatch.setattr(Child, "closed", 0)

    def test_solved(self, capsys):
        code, out, _ = run(capsys, "2", str(SOLUTIONS / "02_bank_conflicts.cu"))
        assert code == 0
        assert "cure the bank conflicts of a transpose: solved." in out
        assert "every element at 32x32, 1x1, 31x33" in out
        assert "sm_80" in out  # compiled for the GPU at hand
        assert Child.closed == 1

    def test_right_but_not_what_was_asked(self, capsys):
        code, out, _ = run(capsys, "3", str(EXERCISES[2].starter))
        assert code == 1
        assert "not solved yet: 16 bytes in one load" in out

    def test_a_wrong_element_ends_the_check_and_says_where(self, capsys):
        Child.verdicts = [Verdict(True), Verdict(True), Verdict(False, reason="C[0][0] is 1, expected 2")]
        code, out, _ = run(capsys, "1", str(SOLUTIONS / "01_tile.cu"))
        assert code == 1
        assert "1x1x1 fp32, normal inputs: C[0][0] is 1, expected 2" in out

    def test_a_fault_is_a_failure(self, capsys):
        Child.verdicts = [DeviceError("an illegal address")]
        code, out, _ = run(capsys, "5", str(EXERCISES[4].starter))
        assert code == 1
        assert "32x32x32 fp32, normal inputs: an illegal address" in out
