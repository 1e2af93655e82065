"""Tuning on a GPU of plain Python: heats, the winner, wrong and hanging candidates, interruption, files."""

import io
import json
from types import SimpleNamespace

import pytest
from fake_device import FakeContender
from test_bench import gpu, product  # noqa: F401
from test_cli import no_gpu, run  # noqa: F401

from lowlevel import advise, bench, catalog, gpu_worker, hardware, tune, tuned
from lowlevel.catalog.select import select
from lowlevel.commands import bench as bench_command
from lowlevel.dtypes import BF16, FP32
from lowlevel.errors import CompileError, UsageError
from lowlevel.journal import Journal
from lowlevel.measure import rounds
from lowlevel.problems.gemm import Gemm
from lowlevel.toolchain.binary import Binary, Entry, Resources
from lowlevel.tune import TuneOptions, run_tune
from lowlevel.tuned import Figure, Tuned
from lowlevel.worker import WorkerHung

H200 = hardware.find("H200")
(TILE,) = select(["gemm/08_warp_tile"])
SHAPE = Gemm(64, 48, 32, FP32)
OPTIONS = TuneOptions(("gemm/08",), "64x48x32", candidates=26)
REFERENCE = tune.at(TILE, tuned.untuned(TILE.kernel, SHAPE, H200)[0])
CANDIDATES = tune.candidates(TILE, SHAPE, H200, 26)
FAST, SECOND, LOST = (v.name for v in (CANDIDATES[20], CANDIDATES[7], CANDIDATES[12]))


@pytest.fixture
def tuning(gpu, monkeypatch):  # noqa: F811
    """Everything compiles; a candidate takes `times[name]` microseconds, 10000 unless said otherwise: long calls are
    few calls. `seen` has the contenders of every timing."""
    binary = Binary("cuda", "sm_90", b"", b"", {"gemm": Entry("gemm", Resources(200), ())}, ())
    state = SimpleNamespace(times={FAST: 5000.0, SECOND: 6000.0}, seen=[], wrong=set(), binary=binary, gpu=gpu)
    real = gpu_worker.measure

    def measure(problem, members, options, checked, *rest):
        state.seen.append((list(members), options))
        yield from real(problem, members, options, checked, *rest)

    def contender(name, _problem, _binary):
        wrong = name in state.wrong
        return FakeContender(name, lambda a: product(a) * (2 if wrong else 1), state.times.get(name, 10000.0))

    monkeypatch.setattr(bench, "build_all", lambda requests, **_: [binary] * len(requests))
    monkeypatch.setattr(gpu_worker, "measure", measure)
    monkeypatch.setattr(gpu_worker, "contender", contender)
    monkeypatch.setattr(rounds, "_recheck", lambda *_: "")
    return state


def tuned_with(options=OPTIONS):
    out = io.StringIO()
    return run_tune(options, out), out.getvalue()


def stored():
    return Tuned.load(tuned.user_path("H200"))


def test_the_candidates_of_a_kernel_that_counts_its_clocks_are_the_best_by_its_count():
    variant = select(["cuda:gemm/25[bf16,NT]"])[0]
    problem = Gemm(4096, 14336, 4096, BF16, "NT")
    listed = list(variant.kernel.configs)
    tried = [v.config for v in tune.candidates(variant, problem, H200, 48)]
    assert (tried[: len(listed)], len(tried)) == (listed, 48)
    advised = [(a.variant.config, a.estimate.microseconds) for a in advise.advise(variant, problem, H200)]
    others = tune.spread([(config, us) for config, us in advised if config not in listed])
    assert tried[len(listed) :] == others[: 48 - len(listed)]
    assert tried[len(listed)] == next(config for config, _ in advised if config not in listed)


def test_a_configuration_that_is_named_is_tried_too(tuning):
    """Once, with the others; the kernel is not tuned again for each that is named."""
    others = [v.name for v in tune.candidates(TILE, SHAPE, H200, 400)]
    far, further = others[-2:]
    groups = tune.choose(TuneOptions((far, further, "gemm/08"), "64x48x32"))
    ((variant, problem),) = tune.jobs(groups)
    configs = tune.configs_named(groups, variant, problem)
    assert [tune.at(variant, config).name for config in configs] == [far, further]
    tried = [v.name for v in tune.candidates(variant, problem, H200, 26, configs)]
    assert (len(tried), tried.count(far), tried.count(further)) == (26, 1, 1)
    assert tried[: len(TILE.kernel.configs)] == others[: len(TILE.kernel.configs)]
    tuning.times[far] = 4000.0
    assert tuned_with(TuneOptions((far, "gemm/08"), "64x48x32", candidates=26))[0] == 0
    (choice,) = stored().choices
    assert tune.at(TILE, choice.config).name == far


def test_ties_do_not_crowd_out_what_is_nearly_as_good():
    ranked = [*(({"GROUP": group}, 10.0) for group in (8, 4, 16)), ({"BM": 64}, 10.06), ({"BM": 32}, 12.0)]
    assert [list(c.values()) for c in tune.spread(ranked)] == [[8], [4], [64], [16], [32]]


def test_the_fastest_is_found_and_stored_with_all_figures(tuning):
    code, text = tuned_with()
    (choice,) = stored().choices
    assert code == 0
    assert tune.at(TILE, choice.config).name == FAST
    assert choice.reference == dict(REFERENCE.config)
    assert (choice.median_us, choice.vs_reference) == (pytest.approx(5000.0), pytest.approx(2.0))
    assert choice.vs_best_library == pytest.approx(2.0)  # a library's call takes 10000 here
    assert choice.shape == (64, 48, 32)
    tried = {tuple(f.config.items()) for f in choice.tried}
    assert len(tried) >= 24
    assert [sum(f.passed == p for f in choice.tried) for p in (1, 2)] == [len(tried), 6]
    assert {f.registers for f in choice.tried} == {200}
    assert "chosen: " in text
    assert "2.000 of " in text
    assert "26 configurations tried" in text
    assert not tuned.unfinished_path("H200").exists()
    assert tuned.suited(TILE, SHAPE, H200).chosen_by == "tuned (exact)"
    assert tuned.suited(TILE, SHAPE, H200).name == FAST


def test_heats_hold_the_reference_and_passes_are_longer_for_fewer(tuning):
    tuned_with()
    assert all(members[0] == REFERENCE.name for members, _ in tuning.seen)
    first, second, third = ([m for m, o in tuning.seen if o.least_rounds == least] for least in (3, 5, 8))
    assert [len(m) for m in first] == [10, 10, 8]
    assert len(second) == len(third) == 1
    assert FAST in second[0]
    assert {FAST, SECOND} < set(third[0])
    assert any(name.startswith("library/") for name in third[0])
    assert not any(name.startswith("library/") for m in first + second for name in m)
    assert [sum("[" in name for name in m[0]) for m in (second, third)] == [6, 3]


def test_a_choice_within_the_noise_is_the_reference(tuning):
    tuning.times = {FAST: 9980.0}
    code, text = tuned_with()
    assert code == 0
    assert stored().choices[0].config == dict(REFERENCE.config)
    assert "which would be taken without tuning" in text


def test_wrong_and_hanging_candidates_lose_and_are_told(tuning):
    tuning.wrong = {FAST}
    tuning.gpu.faults[SECOND] = WorkerHung("no answer in 90 s; killed")
    tuning.times[LOST] = 7000.0
    code, text = tuned_with()
    (choice,) = stored().choices
    assert code == 1
    assert tune.at(TILE, choice.config).name == LOST
    status = {tune.at(TILE, f.config).name: f.status for f in choice.tried}
    assert (status[FAST], status[SECOND]) == ("wrong", "hang")
    assert "hang: no answer in 90 s" in text
    assert ": wrong: C[" in text


def test_what_does_not_compile_costs_itself(tuning, monkeypatch):
    def built(requests, **_):
        return [CompileError("no"), *[tuning.binary] * (len(requests) - 1)]

    monkeypatch.setattr(bench, "build_all", built)
    code, _ = tuned_with()
    assert code == 1
    assert [f.status for f in stored().choices[0].tried].count("failed") == 1


def test_nothing_that_runs_is_no_choice(tuning):
    tuning.wrong = {v.name for v in CANDIDATES} | {REFERENCE.name}
    code, text = tuned_with()
    assert code == 1
    assert "no choice is stored" in text
    assert not tuned.user_path("H200").exists()


def interrupted_at(tuning, monkeypatch, call):
    real = gpu_worker.measure

    def measure(*args):
        if len(tuning.seen) == call:
            raise KeyboardInterrupt
        yield from real(*args)

    monkeypatch.setattr(gpu_worker, "measure", measure)
    out = io.StringIO()
    with pytest.raises(KeyboardInterrupt):
        run_tune(OPTIONS, out)
    monkeypatch.setattr(gpu_worker, "measure", real)
    return out.getvalue()


@pytest.mark.parametrize("call", [0, 1, 3, 4])
def test_after_an_interruption_the_same_command_goes_on(tuning, monkeypatch, call):
    text = interrupted_at(tuning, monkeypatch, call)
    assert "The same command goes on from here" in text
    assert not tuned.user_path("H200").exists()
    before = [members for members, _ in tuning.seen]
    assert len(before) == call
    code, _ = tuned_with()
    again = [m for m, _ in tuning.seen[call:]]
    assert code == 0
    assert tune.at(TILE, stored().choices[0].config).name == FAST
    assert len(again) == 5 - call  # three heats, two finals: none twice
    first = [name for members in (before + again)[:3] for name in members if name != REFERENCE.name]
    assert len(first) == len(set(first)) == 25
    assert not tuned.unfinished_path("H200").exists()


def test_shapes_that_were_done_before_an_interruption_are_not_measured_again(tuning, monkeypatch):
    options = TuneOptions(("gemm/08",), "64x48x32,32x32x32", candidates=26)
    real = tune.Tuner.tune

    def second_is_interrupted(self, variant, problem, named):
        if problem.m == 32:
            raise KeyboardInterrupt
        return real(self, variant, problem, named)

    monkeypatch.setattr(tune.Tuner, "tune", second_is_interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_tune(options, io.StringIO())
    assert [c.shape for c in stored().choices] == [(64, 48, 32)]
    monkeypatch.setattr(tune.Tuner, "tune", real)
    count = len(tuning.seen)
    assert tuned_with(options)[0] == 0
    assert len(tuning.seen) == count + 5
    assert [c.shape for c in stored().choices] == [(32, 32, 32), (64, 48, 32)]


def test_figures_of_another_source_are_forgotten(tuning, monkeypatch):
    interrupted_at(tuning, monkeypatch, 3)
    monkeypatch.setattr(tune.cache, "key", lambda _request: "another" * 8)
    tuned_with()
    assert len(tuning.seen) == 3 + 5


def test_a_damaged_journal_is_one_line_and_tuning_starts_anew(tuning, capsys):
    path = tuned.unfinished_path("H200")
    path.parent.mkdir(parents=True)
    for text in (
        "{",
        '{"a": {"figures": []}}',
        '{"a": {"fingerprint": "x", "figures": [{"no": 1}]}}',
        "[]",
        '{"a": 1}',
    ):
        path.write_text(text)
        assert Journal(path).figures("a", "x") == []
        (line,) = capsys.readouterr().err.splitlines()
        assert "is damaged" in line
    assert tuned_with()[0] == 0


def test_a_damaged_or_foreign_file_of_choices_is_refused_before_measuring(tuning, tmp_path):
    path = tmp_path / "a100.json"
    path.write_text("{")
    with pytest.raises(UsageError, match="is not a file of tuned choices"):
        tuned_with(TuneOptions(("gemm/08",), "64", json_path=path))
    tuned.empty(hardware.find("A100")).save(path)
    with pytest.raises(UsageError, match="holds choices for A100 SXM 80GB, and this is H200"):
        tuned_with(TuneOptions(("gemm/08",), "64", json_path=path))
    assert tuning.seen == []


def test_choices_go_where_json_says_and_keep_what_is_there(tuning, tmp_path):
    path = tmp_path / "h200.json"
    for shape in ("64x48x32", "32"):
        tuned_with(TuneOptions(("gemm/08",), shape, candidates=26, json_path=path))
    assert [c.shape for c in Tuned.load(path).choices] == [(32, 32, 32), (64, 48, 32)]
    assert not tuned.user_path("H200").exists()


def test_candidates_are_the_entrys_and_the_best_by_the_model():
    found = tune.candidates(TILE, Gemm(4096, 4096, 4096, FP32), H200, 30)
    assert len(found) == 30
    assert {tuple(v.config.items()) for v in found[:2]} == {tuple(c.items()) for c in TILE.kernel.configs}
    assert len(tune.candidates(TILE, SHAPE, H200, 1)) == 2
    assert len(tune.candidates(TILE, SHAPE, H200, 999)) == 87


def figure(ratio, passed=3, status="ok", us=10.0, **config):
    return Figure({**TILE.config, **config}, passed, status, median_us=us, vs_reference=ratio)


def test_the_winner():
    reference = dict(TILE.config)
    base, near, far = figure(1.0), figure(1.004, BK=8), figure(1.02, BK=32)
    assert tune.winner([base, near], reference) == base
    assert tune.winner([base, near, far], reference) == far
    assert tune.winner([near, far], reference) == far
    assert tune.winner([base, figure(2.0, status="wrong", BK=8)], reference) == base
    assert tune.winner([figure(1.0, 1), figure(3.0, 1, BK=8), figure(1.1, 2, BK=32)], reference).config["BK"] == 32
    assert tune.winner([], reference) is None
    alone = figure(None, us=5.0, BK=8), figure(None, us=4.0, BK=32)
    assert tune.winner(alone, reference) == alone[1]


def test_heats_of_equal_size():
    members = CANDIDATES
    assert [len(h) for h in tune.heats(members, [], 1, REFERENCE)] == [9, 9, 7]
    assert tune.heats([REFERENCE], [], 1, REFERENCE) == [[REFERENCE]]
    assert tune.heats([], [], 2, REFERENCE) == []
    assert [len(h) for h in tune.heats(members, [], 2, REFERENCE)] == [25]


class TestCommand:
    WRONG = {
        (): "--tune needs a kernel, as in",
        ("gemm/04", "64"): "no tuning space in the catalog; kernels with one: cuda:gemm/08_warp_tile",
        ("gemm/08", "64", "--suite", "main"): "and no --suite",
        ("gemm/08", "64", "--sweep", "BK=8"): "and no --sweep",
        ("gemm/08", "64", "--runs", "2"): "and no --runs",
        ("gemm/08", "64"): "tuning needs a GPU: no CUDA driver (libcuda.so.1 not found); `lowlevel advise`",
        ("gemm/08", "64", "--dtype", "bf16"): "no variant of gemm/08 has dtype bf16",
    }

    @pytest.mark.parametrize("words", WRONG, ids=" ".join)
    def test_wrong_input_is_one_line(self, no_gpu, capsys, words):  # noqa: F811
        code, _, err = run(capsys, "bench", "--tune", *words)
        assert code == 2
        assert self.WRONG[words] in err
        assert len(err.splitlines()) == 1

    def test_candidates_belong_to_tune(self, no_gpu, capsys):  # noqa: F811
        assert "--candidates is for --tune" in run(capsys, "bench", "gemm/08", "--candidates", "9")[2]

    def test_the_command_line_hands_it_on(self, tuning, monkeypatch, capsys, tmp_path):
        monkeypatch.setattr(bench_command, "probe", lambda: None)
        path = tmp_path / "h200.json"
        words = ["bench", "--tune", "gemm/08", "64x48x32", "--candidates", "24", "--budget", "5", "--json", str(path)]
        code, out, _ = run(capsys, *words)
        assert code == 0
        assert "Tuning 1 shapes, at most 24 configurations each, about 5 s of timing each" in out
        assert f"Choices are in {path}" in out
        assert json.loads(path.read_text())["choices"][0]["kernel"] == TILE.kernel.label

    def test_ctrl_c_is_130(self, tuning, monkeypatch, capsys):
        monkeypatch.setattr(bench_command, "probe", lambda: None)

        def stop(*_args, **_kwargs):
            raise KeyboardInterrupt

        monkeypatch.setattr(tune.Tuner, "tune", stop)
        code, _, err = run(capsys, "bench", "--tune", "gemm/08", "64")
        assert (code, err) == (130, "lowlevel: interrupted\n")


def test_every_kernel_with_a_space_can_be_tuned():
    for kernel in catalog.kernels():
        if kernel.space:
            problem = Gemm(4096, 4096, 4096, kernel.types[0], kernel.layouts[0])
            assert len(tune.candidates(kernel.variants()[0], problem, H200, 48)) >= 24
