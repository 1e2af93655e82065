"""gemm/26_fp8: its scales in the problem and in `run`, its rules, and what a table says of its sums' errors."""

import types

import numpy as np
import pytest

from lowlevel import catalog, hardware, report, verify
from lowlevel.catalog import fast, space
from lowlevel.commands.verify import OTHER_SCALES, problems_of
from lowlevel.dtypes import BF16, ELEMENTS, FP8
from lowlevel.errors import UsageError
from lowlevel.interop import runner
from lowlevel.interop import session as sessions
from lowlevel.interop.arrays import View
from lowlevel.problems.base import Expected
from lowlevel.problems.gemm import Gemm
from lowlevel.results import Row

H200 = hardware.find("H200")
KERNEL = next(k for k in catalog.kernels() if k.label == "cuda:gemm/26_fp8")
BASE = KERNEL.configs[0]
PROMOTED = next(c for c in KERNEL.configs if c["PROMOTE"])


def cube(side: int) -> Gemm:
    return Gemm(side, side, side, FP8, "NT")


# ---- Scales


def test_scales_are_operands_of_one_number():
    names = [o.name for o in Gemm(8, 8, 8, FP8, "NT", epilogue="bias").operands()]
    assert names == ["A", "B", "scale_a", "scale_b", "bias", "C"]
    assert [o.name for o in Gemm(8, 8, 8, BF16, "NT").operands()] == ["A", "B", "C"]
    inputs = Gemm(8, 8, 8, FP8, "NT", scales=(0.5, 3.0)).inputs(0)
    assert (inputs["scale_a"].item(), inputs["scale_b"].item()) == (0.5, 3.0)
    assert inputs["scale_a"].dtype == inputs["scale_b"].dtype == np.float32
    with pytest.raises(UsageError, match="bf16 has no scales"):
        Gemm(8, 8, 8, BF16, "NT", scales=(0.5, 3.0))


@pytest.mark.parametrize("epilogue", ["none", "bias", "residual"])
def test_the_reference_multiplies_by_both_and_the_bound_grows_with_them(epilogue):
    plain = Gemm(16, 24, 40, FP8, "NT", epilogue=epilogue)
    scaled = Gemm(16, 24, 40, FP8, "NT", epilogue=epilogue, scales=(0.75, -3.0))
    inputs = plain.inputs(0)
    (one,), (other,) = plain.expected(inputs), scaled.expected(scaled.inputs(0))
    addend = 0.0 if epilogue == "none" else inputs[epilogue].astype(np.float64)
    np.testing.assert_allclose(other.value, -2.25 * (one.value - addend) + addend, rtol=1e-12)
    if epilogue == "none":
        np.testing.assert_allclose(other.bound, 2.25 * one.bound, rtol=1e-12)


def test_integers_stay_exact_where_scales_are_powers_of_two():
    for scales, exact in (((1.0, 1.0), True), ((0.5, -4.0), True), ((0.75, 1.0), False)):
        problem = Gemm(8, 8, 8, FP8, "NT", scales=scales)
        (part,) = problem.expected(problem.inputs(0, "integer"), "integer")
        assert (part.bound is None) == exact


def test_verify_tries_scales_that_are_not_one():
    variant = KERNEL.variants()[0]
    *usual, last = problems_of(variant, "")
    assert {p.scales for p in usual} == {(1.0, 1.0)}
    assert last.scales == OTHER_SCALES
    assert last.label == usual[-1].label


@pytest.mark.parametrize("given", [{}, {"scale_a": 2.0}, {"scale_a": 2, "scale_b": np.array([[0.5]], np.float32)}])
def test_run_takes_numbers_and_arrays_of_one_element(given):
    found = runner.scales_of(KERNEL.variants()[0], given, 0)
    assert [(name, v.shape, v.dtype) for name, v in found.items()] == [
        ("scale_a", (1, 1), np.float32),
        ("scale_b", (1, 1), np.float32),
    ]
    assert found["scale_a"].item() == given.get("scale_a", 1.0)
    assert found["scale_b"].item() == np.asarray(given.get("scale_b", 1.0)).item()


def test_run_refuses_other_scales():
    unscaled = next(k for k in catalog.kernels() if k.label == "cuda:gemm/25_fast").variants()[0]
    assert runner.scales_of(unscaled, {}, 0) == {}
    with pytest.raises(UsageError, match="cuda:gemm/25_fast has no scale_b for bf16"):
        runner.scales_of(unscaled, {"scale_b": 1.0}, 0)
    with pytest.raises(UsageError, match="scale_a has 2 elements: give one number"):
        runner.scales_of(KERNEL.variants()[0], {"scale_a": np.ones(2, np.float32)}, 0)


class _Memory:
    def __init__(self, nbytes):
        self.nbytes, self.address, self.freed = nbytes, id(self), False

    def upload(self, array):
        self.value = array.item()

    def free(self):
        self.freed = True


def test_a_number_is_put_into_device_memory_once(monkeypatch):
    monkeypatch.setattr(sessions, "BOUND", 2)
    held = sessions.Session(types.SimpleNamespace(allocate=_Memory))
    two, three, four = (np.full((1, 1), value, np.float32) for value in (2, 3, 4))
    kept = held.number(two)
    assert (kept.value, kept.nbytes) == (2.0, 4)
    other = held.number(three)
    assert held.number(two.copy()) is kept
    held.number(four)
    assert (kept.freed, other.freed) == (False, True)  # the one used longest ago


def test_run_passes_scales_on_where_they_lie():
    """A number is a buffer of the session's, an array is used where it is."""
    variant, problem, launched = KERNEL.variants()[0], Gemm(16, 16, 16, FP8, "NT"), {}
    device = types.SimpleNamespace(
        allocate=_Memory, borrow=lambda address, nbytes: types.SimpleNamespace(address=address, nbytes=nbytes)
    )
    held = sessions.Session(device)
    held.launch = lambda variant, problem, buffers, handle: launched.update(buffers)

    def view(address: int, shape: tuple, element: str) -> View:
        return View(address, shape, (16, 1), np.dtype(element), 0, None, False, None)

    given = [view(256, (16, 16), "u1"), view(512, (16, 16), "u1"), np.full((1, 1), 3.0, np.float32)]
    target = view(1024, (16, 16), "u2")
    runner._on_device(held, variant, problem, [*given, view(772, (1, 1), "f4")], target, target, 0)
    assert (launched["A"].address, launched["A"].nbytes) == (256, 256)
    assert launched["scale_a"].value == 3.0
    assert (launched["scale_b"].address, launched["scale_b"].nbytes) == (772, 4)


# ---- Rules


def test_promoted_sums_need_registers_twice():
    """128 x 192 shared by two warpgroups: 96 sums a thread, and as many partial ones. 256 x 128: 128, and those of one
    of its two blocks of 64 rows."""
    wide = BASE | {"BN": 192, "OVERLAP": 0, "STAGES": 4}
    tall = wide | {"BM": 256, "BN": 128}
    assert [fast.sums_of_a_thread(c | {"PROMOTE": 0}) for c in (wide, tall)] == [96, 128]
    assert [fast.sums_of_a_thread(c | {"PROMOTE": 128}) for c in (wide, tall)] == [192, 192]


@pytest.mark.parametrize(
    ("numbers", "rule"),
    [
        ({}, None),
        (PROMOTED, None),
        ({"BK": 64}, "BK is not 128 bytes"),
        (PROMOTED | {"PROMOTE": 192}, "whole number of k-blocks"),
        (PROMOTED | {"PROMOTE": 128 * (PROMOTED["STAGES"] + 1)}, "whole number of k-blocks"),
        (PROMOTED | {"OVERLAP": 2}, "PROMOTE takes two consumers"),
        (PROMOTED | {"PINGPONG": 1}, "PROMOTE takes two consumers"),
        (PROMOTED | {"BM": 256, "BN": 192, "STAGES": 3}, "registers"),
        (PROMOTED | {"SPLITS": 2}, "PROMOTE=0"),
    ],
)
def test_what_the_host_refuses(numbers, rule):
    found = space.refusal(KERNEL, BASE | numbers, cube(4096), H200)
    assert found is None if rule is None else rule in (found or "")


@pytest.mark.parametrize("config", KERNEL.configs, ids=str)
def test_listed_configurations_are_none_that_the_host_refuses(config):
    problem = cube(4096) if config["SPLITS"] == 1 else Gemm(512, 512, 4096, FP8, "NT")
    assert space.refusal(KERNEL, config, problem, H200) is None


def test_the_rule_takes_small_tiles_where_each_sm_has_one():
    """Where there is one tile for each SM, nobody takes turns."""
    config = KERNEL.configs[KERNEL.choose(KERNEL.configs, Gemm(1024, 1024, 1024, FP8, "NT"), H200)]
    assert (config["BM"], config["BN"], config["PINGPONG"]) == (64, 128, 0)


@pytest.mark.parametrize("shape", [(512,) * 3, (4096,) * 3, (8192,) * 3, (16384,) * 3, (4096, 7168, 16384)])
def test_the_rule_never_takes_promoted_sums_unasked(shape):
    """Not even where they cost as much."""
    problem = Gemm(*shape, FP8, "NT")
    assert KERNEL.configs[KERNEL.choose(KERNEL.configs, problem, H200)]["PROMOTE"] == 0
    assert KERNEL.choose([PROMOTED, PROMOTED | {"PROMOTE": 0}], problem, H200) == 1


# ---- Errors in tables


def test_rms_error_is_a_part_of_c():
    value = np.array([[3.0, 4.0], [0.0, 0.0]])
    part = Expected(slice(0, 2), slice(0, 2), value, np.full((2, 2), 1.0))
    output = np.array([[3.0, 4.5], [0.0, 0.0]], ELEMENTS["bf16"].numpy)
    problem = Gemm(2, 2, 1, BF16)
    assert verify.check_output(problem, [part], output).rms_error == pytest.approx(0.1)
    exact = Expected(part.rows, part.columns, output, None)
    assert verify.check_output(problem, [exact], output).rms_error == 0.0


def test_the_view_of_fp8_shows_fast_and_promoted_sums_beside_each_other():
    rows = [
        Row(
            "gemm",
            "library/cublaslt",
            "lt #1 of 4, fast accumulation",
            language="library",
            dtype="fp8",
            m=64,
            n=64,
            k=64,
        ),
        Row("gemm", "gemm/26_fp8", "128x256x128,PROMOTE=0", language="cuda", dtype="fp8", m=64, n=64, k=64),
        Row("gemm", "gemm/25_fast", "128x256x64", language="cuda", dtype="bf16", m=64, n=64, k=64),
    ]
    for row, rms in zip(rows, (2e-3, 3e-3, 1e-3), strict=True):
        row.max_error, row.error_bound, row.rms_error, row.status = 0.5, 2.0, rms, "ok"
    text = report.VIEWS["fp8"](rows)
    assert "rms error" in text.splitlines()[0]
    assert "2.00e-03" in text
    assert "PROMOTE=0" in text
    assert "3.00e-03" in text
    assert "25_fast" not in text
