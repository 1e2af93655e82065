"""The checker, tested with wrong results: each must be found."""

import json
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
from fake_device import FakeContender, FakeDevice

from lowlevel import catalog, cli, gpu_worker, hardware, verify
from lowlevel.catalog import library
from lowlevel.commands import verify as command
from lowlevel.contender import KernelContender
from lowlevel.dtypes import BF16, ELEMENTS, FP8, FP16, FP32, INT8, MOVE32
from lowlevel.errors import UsageError
from lowlevel.problems import gemm
from lowlevel.problems.base import Expected, bits
from lowlevel.problems.gemm import Gemm
from lowlevel.problems.move import Transpose
from lowlevel.verify import Checker, Verdict, check_output, located, padded
from lowlevel.worker import WorkerHung


def product(problem):
    """The right result, rounded once."""
    inputs = problem.inputs(0)
    exact = inputs["A"].astype(np.float64) @ inputs["B"].astype(np.float64).T
    return inputs, exact.astype(ELEMENTS[problem.type.output].numpy)


def verdict_of(problem, output, kind="normal"):
    return check_output(problem, list(problem.expected(problem.inputs(0, kind), kind)), output)


@pytest.mark.parametrize("type_", [FP32, FP16, BF16, FP8, INT8], ids=lambda t: t.name)
def test_the_right_result_passes(type_):
    problem = Gemm(65, 129, 257, type_, "NT")
    verdict = verdict_of(problem, product(problem)[1])
    assert verdict.ok, verdict.reason
    assert verdict.max_error <= verdict.error_bound or type_ is INT8


def spoil_nan(c):
    c[3, 7] = np.nan


def spoil_inf(c):
    c[64, 128] = np.inf


def spoil_untouched_tile(c):
    c.view(np.uint8).reshape(65, -1)[32:64, : 32 * c.itemsize] = 0xFF


def spoil_last_row(c):
    c[-1] = 0


def spoil_shift(c):
    c[:, 1:] = c[:, :-1].copy()


SPOILERS = [spoil_nan, spoil_inf, spoil_untouched_tile, spoil_last_row, spoil_shift]


@pytest.mark.parametrize("spoil", SPOILERS)
@pytest.mark.parametrize("type_", [FP32, FP16, BF16, FP8], ids=lambda t: t.name)
def test_a_wrong_result_is_found(type_, spoil):
    problem = Gemm(65, 129, 257, type_, "NT")
    output = product(problem)[1]
    spoil(output)
    verdict = verdict_of(problem, output)
    assert not verdict.ok
    assert "C[" in verdict.reason


def test_an_untouched_tile_says_so():
    problem = Gemm(65, 129, 257, FP32, "NT")
    output = product(problem)[1]
    spoil_untouched_tile(output)
    assert "C[32][0] was never written; 1024 of 8385 are not finite" in verdict_of(problem, output).reason


def test_a_transposed_result_is_found():
    problem = Gemm(64, 64, 64, FP32, "NT")
    assert not verdict_of(problem, np.ascontiguousarray(product(problem)[1].T)).ok


@pytest.mark.parametrize("type_", [FP32, FP16, BF16, FP8], ids=lambda t: t.name)
def test_one_missing_k_block_is_found_at_k_16384(type_):
    problem = Gemm(48, 48, 16384, type_, "NT")
    inputs, _ = product(problem)
    short = inputs["A"][:, :-32].astype(np.float64) @ inputs["B"][:, :-32].astype(np.float64).T
    assert not verdict_of(problem, short.astype(ELEMENTS[type_.output].numpy)).ok


@pytest.mark.parametrize("type_", [FP32, BF16], ids=lambda t: t.name)
def test_one_element_off_by_four_bounds_is_found_and_by_half_a_bound_passes(type_):
    problem = Gemm(65, 129, 257, type_, "NT")
    inputs, output = product(problem)
    (part,) = problem.expected(inputs)
    element = ELEMENTS[type_.output].numpy
    at = np.unravel_index(np.argmax(np.abs(part.value)), part.value.shape)
    output[at] = np.array(part.value[at] + 4.1 * part.bound[at]).astype(element)
    verdict = verdict_of(problem, output)
    assert not verdict.ok
    assert f"C[{at[0]}][{at[1]}]" in verdict.reason
    assert "1 of 8385 wrong" in verdict.reason
    output[at] = np.array(part.value[at] + 0.4 * part.bound[at]).astype(element)
    assert verdict_of(problem, output).ok


def test_integers_compare_exactly():
    problem = Gemm(33, 17, 64, FP32, "NT")
    inputs = problem.inputs(0, "integer")
    exact = (inputs["A"].astype(np.float64) @ inputs["B"].astype(np.float64).T).astype(np.float32)
    assert verdict_of(problem, exact, "integer").ok
    exact[5, 5] += 1
    assert not verdict_of(problem, exact, "integer").ok


def test_int8_off_by_one_is_found():
    problem = Gemm(33, 17, 64, INT8, "NT")
    output = product(problem)[1]
    output[32, 16] += 1
    assert "C[32][16]" in verdict_of(problem, output).reason


def test_moved_bits_are_compared_as_bits():
    problem = Transpose(9, 5, MOVE32)
    a = problem.inputs(0)["A"]
    assert verdict_of(problem, np.ascontiguousarray(a.T)).ok
    wrong = np.ascontiguousarray(a.T)
    wrong[2, 3] = np.nextafter(wrong[2, 3], np.float32(9))
    assert not verdict_of(problem, wrong).ok


def run(function, problem=None, **options):
    problem = problem or Gemm(16, 24, 8, FP32, ldc=28)
    checker = Checker(FakeDevice(), problem)
    return checker, checker.run(FakeContender("x", function), **options)


def matmul(arrays):
    return (arrays["A"].astype(np.float64) @ arrays["B"]).astype(np.float32)


def test_the_checker_passes_what_is_right():
    _, verdict = run(matmul, repeats=3)
    assert verdict.ok, verdict.reason


def test_written_padding_is_found():
    problem = Gemm(16, 24, 8, FP32, ldc=28)
    parts = list(problem.expected(problem.inputs(0)))
    output = np.full((16, 28 * 4), 0xFF, np.uint8).view(np.float32)
    inputs = problem.inputs(0)
    output[:, :24] = inputs["A"].astype(np.float64) @ inputs["B"]
    assert check_output(problem, parts, output).ok
    output[7, 25] = 0
    assert check_output(problem, parts, output).reason == "padding written: C[7][25], past the row's end"


def test_a_broken_guard_is_found():
    checker, verdict = run(matmul)
    assert verdict.ok
    checker.buffers["B"].guard_report = "1 guard byte before the buffer overwritten"
    assert checker.run(FakeContender("x", matmul)).reason == "B: 1 guard byte before the buffer overwritten"


def test_results_that_change_between_launches_are_found():
    count = []

    def drifting(arrays):
        count.append(1)
        return matmul(arrays) * np.float32(1 + 2.0**-23 * len(count))

    assert run(drifting)[1].ok
    count.clear()
    assert run(drifting, repeats=4)[1].reason == "a second launch gave other bits"


def test_inputs_lie_between_poisoned_padding():
    operand = Gemm(2, 2, 3, FP32, lda=5).operands()[0]
    memory = padded(operand, np.arange(6, dtype=np.float32).reshape(2, 3))
    assert memory.shape == (2, 5)
    assert np.isnan(memory[:, 3:]).all()
    assert memory[1, 2] == 5


def test_a_bad_element_is_traced_to_tile_warp_and_lane():
    variant = catalog.find("cuda:gemm/02_tiled[fp32,NN,32x32x32]")
    verdict = located(Verdict(False, reason="C[33][70] is 1, expected 2"), KernelContender(variant, None))
    assert verdict.reason == "C[33][70] is 1, expected 2 (tile_m 1, tile_n 2, warp 1, lane 6)"


def test_a_bad_element_of_a_register_tile_is_traced_to_its_thread():
    """Row 72 of a tile of 128 is in the third four of its half, column 70 in the second: thread 2 * 16 + 1."""
    variant = catalog.find("ptx:gemm/07_async[fp32,NN,128x128x8]")
    verdict = located(Verdict(False, reason="C[200][70] is 1, expected 2"), KernelContender(variant, None))
    assert verdict.reason == "C[200][70] is 1, expected 2 (tile_m 1, tile_n 0, warp 1, lane 1)"


@pytest.mark.parametrize("kernel", ["ptx:gemm/04_register_tile", "ptx:gemm/07_async"])
def test_the_threads_of_a_block_share_its_tile_evenly(kernel):
    found = next(k for k in catalog.kernels() if k.label == kernel)
    config = found.configs[0]
    owners = Counter(found.owner(config, row, column) for row in range(config["BM"]) for column in range(config["BN"]))
    assert set(owners) == set(range(found.launch.block))
    assert set(owners.values()) == {config["BM"] * config["BN"] // found.launch.block}


@pytest.mark.parametrize("epilogue", ["bias", "bias_relu", "residual", "bias_silu"])
@pytest.mark.parametrize("type_", [FP32, BF16], ids=lambda t: t.name)
def test_the_rest_of_a_large_output_is_compared_with_epilogue_and_size_without(monkeypatch, type_, epilogue):
    """For the comparison on the device the library makes the result, and |A||B| from absolute operands."""
    monkeypatch.setattr(gemm, "WHOLE_FLOPS", 0)
    calls = []

    def contenders_of(problem):
        def compute(arrays):
            calls.append((problem.epilogue, sorted(arrays)))
            addend = arrays.get(problem.finish.addend, np.zeros(1)).astype(np.float64)
            value = arrays["A"].astype(np.float64) @ arrays["B"].astype(np.float64)
            return problem.finish.value(value, addend).astype(ELEMENTS[problem.type.output].numpy)

        return [FakeContender("library/x", compute)]

    monkeypatch.setattr(library, "contenders_of", contenders_of)
    problem = Gemm(70, 90, 40, type_, lda=44, ldb=92, ldc=94, epilogue=epilogue)
    seen = []

    def compare_on_device(device, problem, output, trusted, exact):
        seen.append((problem, output, trusted, exact))

    monkeypatch.setattr(verify, "compare_on_device", compare_on_device)
    for kind in ("normal", "integer"):
        checker = Checker(FakeDevice(), problem, kind=kind)
        calls.clear()
        verdict = checker.run(contenders_of(problem)[0])
        assert verdict.ok, verdict.reason
        assert verdict.checked == "64 rows, 64 columns and the edge tiles; the rest against the library"
        got, output, trusted, exact = seen.pop()
        assert got is problem
        assert output is checker.buffers["C"]
        assert exact == (kind == "integer" and epilogue != "bias_silu")
        np.testing.assert_array_equal(bits(in_c(problem, trusted.result)), bits(in_c(problem, output)))
        size = np.abs(checker.inputs["A"].astype(np.float64)) @ np.abs(checker.inputs["B"].astype(np.float64))
        np.testing.assert_allclose(in_c(problem, trusted.size).astype(np.float64), size, rtol=2.0**-8)
        names = ["A", "B", problem.finish.addend]
        assert calls == [(epilogue, names)] * 2 + [("none", ["A", "B"])]


def in_c(problem, buffer):
    """The output without its padding."""
    c = problem.operands()[-1]
    return np.ascontiguousarray(buffer.download(c.dtype, (c.shape[0], c.leading))[:, : c.shape[1]])


def test_without_a_library_call_the_rest_is_not_compared_and_the_verdict_says_so(monkeypatch):
    monkeypatch.setattr(gemm, "WHOLE_FLOPS", 0)
    problem = Gemm(16, 24, 8, BF16, epilogue="bias_silu")

    def compute(arrays):
        value = arrays["A"].astype(np.float64) @ arrays["B"].astype(np.float64)
        return problem.finish.value(value, arrays["bias"].astype(np.float64)).astype(arrays["A"].dtype)

    _, verdict = run(compute, problem)
    assert verdict.ok, verdict.reason
    assert verdict.checked == "64 rows, 64 columns and the edge tiles (no library call computes it)"


def refused(_arrays):
    raise UsageError("CUBLAS_STATUS_NOT_SUPPORTED")


def test_a_librarys_first_right_algorithm_is_the_one_judged():
    class Library(FakeContender):
        def candidates(self, device, problem, buffers):
            wrong = lambda arrays: matmul(arrays) + 1  # noqa: E731
            return [FakeContender("c", f).bind(device, problem, buffers) for f in (wrong, refused, matmul)]

        def choose(self, index):
            self.chosen = index

    checker, _ = run(matmul)
    library = Library("library", matmul)
    assert checker.run(library).ok
    assert library.chosen == 2
    assert checker.right_candidates(library) == [2]


def test_what_a_call_allocated_is_freed_also_when_it_fails():
    """A workspace for every shape would fill the memory."""
    problem = Gemm(4, 4, 4, FP32, "NT")

    class Owning(FakeContender):
        freed = 0

        def bind(self, device, problem, buffers):
            call = super().bind(device, problem, buffers)
            call.free = lambda: setattr(self, "freed", self.freed + 1)
            return call

    right = Owning("right", lambda arrays: arrays["A"] @ arrays["B"].T)
    Checker(FakeDevice(), problem).run(right, repeats=3)
    failing = Owning("failing", lambda arrays: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        Checker(FakeDevice(), problem).run(failing)
    assert (right.freed, failing.freed) == (1, 1)


class HangingGpu:
    """A child whose every launch hangs."""

    def __init__(self, *_):
        pass

    def call(self, function, *_, deadline):
        if function is gpu_worker.limits:
            return hardware.find("H200")
        raise WorkerHung(f"no answer in {deadline:g} s; killed")

    def close(self):
        pass


@pytest.mark.parametrize(("words", "seconds"), [((), "120"), (("--deadline", "7"), "7")])
def test_a_hang_is_a_row(monkeypatch, capsys, words, seconds):
    monkeypatch.setattr(command, "probe", lambda: "")
    monkeypatch.setattr(command, "Worker", HangingGpu)
    assert cli.main(["verify", "cuda:gemm/01", "64", "--kind", "integer", "--json", *words]) == 1
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["verdict"], row["reason"]) == ("failed", f"no answer in {seconds} s; killed")


def brought_home(monkeypatch):
    """The names of the problems whose outputs were compared on the host."""
    seen, real = [], verify.check_output
    monkeypatch.setattr(verify, "check_output", lambda p, parts, output: seen.append(p.label) or real(p, parts, output))
    return seen


def test_the_bytes_of_a_right_result_are_not_brought_home_again(monkeypatch):
    seen = brought_home(monkeypatch)
    checker, first = run(matmul)
    assert (first.ok, len(seen)) == (True, 1)
    assert checker.run(FakeContender("same", matmul), repeats=3) == first
    assert len(seen) == 1


@pytest.mark.parametrize("at", [(0, 0), (7, 15), (7, 24)], ids=["first", "last", "padding"])
def test_a_single_other_byte_is_brought_home_and_found(monkeypatch, at):
    problem = Gemm(8, 16, 4, FP32, "NN", ldc=25)
    seen = brought_home(monkeypatch)
    checker, _ = run(matmul, problem)
    spoiled = checker.download(checker.buffers)
    spoiled.view(np.uint32)[at] ^= 1 << 30
    checker.buffers["C"].upload(spoiled)
    assert not checker.judge(checker.buffers).ok
    assert len(seen) == 2
    assert not checker.judge(checker.buffers).ok  # a wrong result is not kept
    assert len(seen) == 3


def test_guards_are_looked_at_whatever_the_result():
    checker, _ = run(matmul)
    checker.buffers["A"].guard_report = "4 guard bytes overwritten"
    assert checker.judge(checker.buffers).reason == "A: 4 guard bytes overwritten"


def test_only_the_last_few_right_results_are_kept(monkeypatch):
    seen = brought_home(monkeypatch)
    problem = Gemm(8, 16, 4, FP32, "NN")
    checker = Checker(FakeDevice(), problem)

    def nudged(ulps):
        return FakeContender("x", lambda arrays: (matmul(arrays).view(np.int32) + ulps).view(np.float32))

    for ulps in range(verify.MOST_KEPT + 1):
        assert checker.run(nudged(ulps)).ok
    count = len(seen)
    assert checker.run(nudged(1)).ok
    assert len(seen) == count
    assert checker.run(nudged(0)).ok  # its place was taken
    assert len(seen) == count + 1
    assert len(checker._kept) == verify.MOST_KEPT
    kept = [buffer for buffer, _ in checker._kept]
    checker.close()
    assert all(buffer.freed for buffer in kept)


def test_nothing_is_kept_where_it_would_fill_the_memory(monkeypatch):
    monkeypatch.setattr(verify, "KEPT_PART", 1e-9)
    checker, verdict = run(matmul, repeats=2)
    assert verdict.ok
    assert checker._kept == []
    calls = []
    drifting = lambda arrays: (matmul(arrays).view(np.int32) + len(calls.append(1) or calls) // 2).view(np.float32)  # noqa: E731
    assert checker.run(FakeContender("x", drifting), repeats=2).reason == "a second launch gave other bits"


def test_judging_takes_no_memory_from_a_full_device():
    """The operand sets of a race may fill it."""
    checker = Checker(FakeDevice(), Gemm(16, 24, 8, FP32, ldc=28))
    checker.device.left = 0
    assert checker.run(FakeContender("x", matmul), repeats=2).ok
    assert checker._kept == []


def test_wrong_elements_of_all_pieces_are_counted(monkeypatch):
    """A large part is compared by blocks of rows; the element named is the furthest off of all."""
    monkeypatch.setattr("lowlevel.problems.blocks.BLOCK", 64)
    problem = Gemm(65, 129, 257, FP32, "NT")
    output = product(problem)[1]
    output[3, 5] += 1
    output[60, 100] += 100
    assert verdict_of(problem, output).reason.startswith("C[60][100] is ")
    assert verdict_of(problem, output).reason.endswith("; 2 of 8385 wrong")


def test_parts_that_were_made_before_are_taken():
    problem = Gemm(8, 16, 4, FP32, "NN")
    parts = list(problem.expected(problem.inputs(0)))
    checker = Checker(FakeDevice(), problem, parts=parts)
    assert checker.parts == parts
    assert checker.run(FakeContender("right", matmul)).ok
    shifted = [Expected(p.rows, p.columns, p.value + 1, p.bound) for p in parts]
    assert not Checker(FakeDevice(), problem, parts=shifted).run(FakeContender("right", matmul)).ok


def test_verify_makes_a_problem_once_for_all_and_shows_the_rows_in_their_order(monkeypatch):
    """Two kernels at two shapes, both kinds: four problems, one after the other."""
    binary, made, calls = object(), [], []

    class Gpu:
        def call(self, function, *args, deadline):
            if function is not command.gpu_worker.verify:
                return FakeDevice().limits
            _, problem, _, _, kind, *_ = args
            calls.append((problem.label, kind))
            if calls[-1:] != made[-1:]:
                made.append(calls[-1])
            return Verdict(True)

    monkeypatch.setattr(command, "build_all", lambda requests: [binary] * len(requests))
    variants = [catalog.find(f"cuda:gemm/{name}") for name in ("01_naive[fp32,NN,8x32]", "02_tiled[fp32,NN,32x32x32]")]
    arguments = SimpleNamespace(arch=None, kind=("normal", "integer"), repeats=2, deadline=1.0)
    rows = command.verify_all(Gpu(), variants, "64,96x64x32", arguments)
    shapes = [("64x64x64", "normal"), ("64x64x64", "integer"), ("96x64x32", "normal"), ("96x64x32", "integer")]
    assert made == shapes
    assert [(r["shape"], r["inputs"]) for r in rows] == shapes * 2
    assert [r["variant"] for r in rows] == [v.shown for v in variants for _ in shapes]
