"""Inputs, references and bounds of every operation."""

import math

import numpy as np
import pytest

from lowlevel import catalog
from lowlevel.dtypes import BF16, ELEMENTS, FP8, FP16, FP16_ACC16, FP32, INT8, MOVE16, MOVE32, TF32
from lowlevel.errors import UsageError
from lowlevel.problems import blocks
from lowlevel.problems.base import normal
from lowlevel.problems.ceiling import Ceiling
from lowlevel.problems.gemm import LAYOUTS, Gemm, round_to_tf32, sampled
from lowlevel.problems.make import make_problem
from lowlevel.problems.move import Copy, Transpose
from lowlevel.problems.probe import PROBES, Probe
from lowlevel.problems.shapes import edge_shapes, few_edge_shapes, parse_shape

TYPES = (FP32, TF32, FP16, FP16_ACC16, BF16, FP8, INT8)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_reference_is_the_formula_in_every_layout(layout):
    problem = Gemm(5, 7, 3, FP32, layout)
    inputs = problem.inputs(0)
    a = inputs["A"] if layout[0] == "N" else inputs["A"].T
    b = inputs["B"] if layout[1] == "N" else inputs["B"].T
    assert (a.shape, b.shape) == ((5, 3), (3, 7))
    (part,) = problem.expected(inputs)
    by_hand = [[sum(float(a[m, k]) * float(b[k, n]) for k in range(3)) for n in range(7)] for m in range(5)]
    np.testing.assert_allclose(part.value, by_hand, rtol=1e-14)


def test_operands_lie_as_the_layout_says():
    nt = {o.name: o for o in Gemm(5, 7, 3, BF16, "NT", ldb=8).operands()}
    assert nt["A"].shape == (5, 3)
    assert nt["B"].shape == (7, 3)
    assert nt["B"].nbytes == 7 * 8 * 2
    assert nt["B"].payload == 7 * 3 * 2
    assert nt["C"].output


def test_flops_and_bytes():
    problem = Gemm(4, 5, 6, FP8, "NT")
    assert problem.flops == 2 * 4 * 5 * 6
    assert problem.bytes == 4 * 6 + 5 * 6 + 4 * 5 * 2 + 2 * 4  # and a scale each
    assert Transpose(10, 20, MOVE16).bytes == 2 * 10 * 20 * 2


@pytest.mark.parametrize("type_", TYPES, ids=lambda t: t.name)
def test_integer_inputs_have_exact_sums(type_):
    problem = Gemm(64, 64, 4096, type_, "NT")
    inputs = problem.inputs(3, "integer")
    (part,) = problem.expected(inputs, "integer")
    assert part.bound is None
    exact = inputs["A"].astype(np.int64) @ inputs["B"].astype(np.int64).T
    np.testing.assert_array_equal(part.value.astype(np.float64), exact.astype(part.value.dtype).astype(np.float64))
    if type_.accumulate == "fp16":
        assert np.abs(exact).max() < 2**11  # every partial sum is representable


def test_the_bound_is_the_designs():
    problem = Gemm(3, 4, 16384, BF16)
    inputs = problem.inputs(0)
    (part,) = problem.expected(inputs)
    a, b = inputs["A"].astype(np.float64), inputs["B"].astype(np.float64)
    wanted = 2.0**-8 * np.abs(a @ b) + 8 * np.sqrt(16384) * 2.0**-23 * (np.abs(a) @ np.abs(b))
    np.testing.assert_allclose(part.bound, wanted, rtol=1e-12)


def test_tf32_inputs_need_no_rounding_again():
    values = round_to_tf32(np.array([1.0, 1 + 2.0**-11, 1 + 2.0**-10, 3 * 2.0**-12 + 1, -5.5], np.float32))
    assert not (values.view(np.uint32) & 0x1FFF).any()
    np.testing.assert_array_equal(values, np.array([1, 1, 1 + 2.0**-10, 1 + 2.0**-10, -5.5], np.float32))


def test_the_same_seed_gives_the_same_inputs_and_another_others():
    problem = Gemm(8, 8, 8, FP32)
    assert np.array_equal(problem.inputs(1)["A"], problem.inputs(1)["A"])
    assert not np.array_equal(problem.inputs(1)["A"], problem.inputs(2)["A"])
    assert not np.array_equal(problem.inputs(1)["A"], problem.inputs(1)["B"])


def test_large_problems_are_sampled_with_their_edges():
    assert Gemm(2048, 2048, 2048, FP32).whole
    assert not Gemm(2048, 2048, 2049, FP32).whole
    rows = sampled(5000)
    assert {0, 4999} <= set(rows)
    assert set(range(5000 - 256, 5000)) <= set(rows)
    assert len(rows) >= 256 + 50


def test_what_cannot_be_a_gemm():
    for arguments, said in (
        ((0, 1, 1, FP32), "at least 1"),
        ((4, 4, 4, FP32, "XX"), "no layout 'XX'; there are: NN, NT, TN, TT"),
        ((4, 4, 4, FP32, "NN", 3), "lda=3 is less than the row it strides over, 4"),
    ):
        with pytest.raises(UsageError, match=said):
            Gemm(*arguments)


def test_moves():
    a = Transpose(3, 5, MOVE32).inputs(0)["A"]
    (part,) = Transpose(3, 5, MOVE32).expected({"A": a})
    assert part.value[4][2] == a[2][4]
    assert part.bound is None
    (part,) = Copy(3, 5, MOVE32).expected({"A": a})
    assert part.value is a


def test_every_probe_has_an_expectation_of_its_shape():
    for name in PROBES:
        problem = Probe(name)
        inputs = problem.inputs(0)
        (part,) = problem.expected(inputs)
        assert part.value.shape == problem.shape
        assert part.value.dtype == np.int32
        assert name == "tensor_map" or not np.array_equal(part.value, inputs["A"])
    with pytest.raises(UsageError, match="no probe 'nothing'; there are: grid_barrier"):
        Probe("nothing")


def test_probe_expectations_by_hand():
    words = np.arange(2048, dtype=np.int32).reshape(1, -1)
    neighbour = PROBES["cluster_shared"].result(words)[0]
    assert list(neighbour[[0, 255, 256, 768, 1023, 1024]]) == [256, 511, 512, 0, 255, 1280]
    backwards = PROBES["large_shared"].result(np.arange(32768, dtype=np.int32).reshape(1, -1))[0]
    assert list(backwards[[0, 16383, 16384]]) == [16383, 0, 32767]
    assert PROBES["grid_barrier"].result(np.array([[1, 2, 2**31 - 1]], np.int32))[0][0] == 1 + 2 - 2**31 + 2 - 2 + 0


def test_shapes_as_people_write_them():
    assert parse_shape("4096") == [(4096,)]
    assert parse_shape("2048x2304x768, 1024") == [(2048, 2304, 768), (1024,)]
    for bad in ("4096x", "0", "1x2x3x4", "-4", "2147483648", ""):
        with pytest.raises(UsageError):
            parse_shape(bad)


@pytest.mark.parametrize("stages", [1, 2, 4])
def test_few_edge_shapes_have_each_kind(stages):
    BM, BN, BK = 64, 128, 32
    shapes = few_edge_shapes(BM, BN, BK, stages)
    assert len(shapes) <= 6
    assert (1, 1, 1) in shapes
    for over in (-1, 1):
        assert any((m % BM, n % BN, k % BK) == (over % BM, over % BN, over % BK) for m, n, k in shapes)
    whole = [(m, n, k // BK) for m, n, k in shapes if n % 16 == 0 and k % BK == 0]  # rows of 16 bytes in every type
    assert any(blocks < max(stages, 2) and m % BM and not n % BN for m, n, blocks in whole)
    assert any(blocks > 2 * stages and n % BN and not m % BM for m, n, blocks in whole)


def test_edge_shapes_surround_tiles_and_pipelines():
    shapes = edge_shapes(32, 64, 16, stages=4)
    assert (1, 1, 1) in shapes
    assert (31, 63, 15) in shapes
    assert (33, 65, 17) in shapes
    assert {k // 16 for m, n, k in shapes if k % 16 == 0} >= {1, 3, 4, 5, 9}
    assert any((-(-m // 32)) * (-(-n // 64)) > 148 for m, n, _ in shapes)
    assert len(set(shapes)) == len(shapes)
    assert len(edge_shapes(32, 64, 16, 4, full=True)) > 90


def test_elements_have_their_unit_roundoff():
    for name in ("fp32", "fp16", "bf16", "fp8"):
        element = ELEMENTS[name]
        one = np.array([1.0, 1.0 + 2 * element.roundoff, 1.0 + 0.9 * element.roundoff]).astype(element.numpy)
        assert float(one[1]) > 1.0
        assert float(one[2]) == 1.0


@pytest.mark.parametrize("type_", [BF16, FP16], ids=lambda t: t.name)
def test_a_ceiling_is_exact_and_tells_one_repetition_too_few(type_):
    problem = Ceiling(type_)
    inputs = problem.inputs(3)
    (part,) = problem.expected(inputs)
    assert part.bound is None
    assert part.value.shape == problem.operands()[-1].shape
    a, b = (inputs[name].astype(np.float64) for name in ("A", "B"))
    assert part.value[512 + 5][7] == a[5] @ b[7]
    assert problem.flops == 2 * math.prod(problem.dimensions[name] for name in "mnk")
    # What one block of a GPU of eight SMs has in its sums, with the half of a product that is undone afterwards.
    most = problem.scalars()["repetitions"] // 8
    largest = most * np.abs(part.value).max() + (np.abs(a[:, :16]) @ np.abs(b[:, :16]).T).max()
    assert largest < 2**24
    assert np.float32((most - 1) * part.value.max()) / np.float32(most) != part.value.max()
    # Data that uses all 8 bits of a bf16, of both signs, and no column of C that is all zero.
    assert {int(np.abs(x).max()).bit_length() for x in (a, b)} <= {7, 8}
    assert (np.abs(part.value[:512]).max(axis=0) > 0).all()
    assert (np.unique(part.value[:512], axis=0).shape[0]) > 16


def test_a_probe_of_arithmetic_is_a_ceiling():
    kinds = {v.kernel.rung: type(make_problem(v)) for v in catalog.variants() if v.kernel.operation == "probe"}
    assert kinds["mma_ceiling"] is Ceiling
    assert {rung for rung, kind in kinds.items() if kind is Probe} == set(PROBES)


def test_bf16_by_its_bits_is_what_ml_dtypes_makes_of_it():
    values = np.random.default_rng(0).standard_normal(1 << 16, dtype=np.float32)
    values[:6] = 1 + 2.0**-8, 1 + 3 * 2.0**-8, 0, -0.0, 3.38e38, -1e-40
    wanted = values.astype(ELEMENTS["bf16"].numpy)
    got = blocks.rounded(values, ELEMENTS["bf16"].numpy)
    np.testing.assert_array_equal(got.view(np.uint16), wanted.view(np.uint16))


@pytest.mark.parametrize("element", ["bf16", "fp16", "fp32", "fp8", "int8"])
def test_arrays_in_float64_and_without_signs_by_blocks(monkeypatch, element):
    monkeypatch.setattr(blocks, "BLOCK", 100)
    array = np.random.default_rng(0).integers(-9, 9, (70, 50)).astype(ELEMENTS[element].numpy)
    for view in (array, array.T, array[:, 3:40], array.T[5:9], array[::7], array[:, 4:5]):
        wanted = view.astype(np.float64)
        np.testing.assert_array_equal(blocks.to_float64(view), wanted)
        np.testing.assert_array_equal(blocks.make_absolute(blocks.to_float64(view)), np.abs(wanted))
    np.testing.assert_array_equal(blocks.absolute(array).astype(np.float64), np.abs(array.astype(np.float64)))


def test_large_inputs_are_drawn_by_blocks_whose_streams_differ(monkeypatch):
    shape, seed = (1024, 2048), (3, 1)
    assert shape[0] * shape[1] == 2 * blocks.BLOCK
    values = normal(shape, seed)
    first, second = values[:512], values[512:]
    alone = np.random.Generator(np.random.SFC64(seed)).standard_normal((512, 2048), dtype=np.float32)
    np.testing.assert_array_equal(first, alone)
    assert abs(np.corrcoef(first.ravel(), second.ravel())[0, 1]) < 0.005
    assert abs(values.mean()) < 0.005
    assert abs(values.std() - 1) < 0.005
    monkeypatch.setattr(blocks, "cores", lambda: 1)
    np.testing.assert_array_equal(normal(shape, seed), values)
