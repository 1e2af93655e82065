"""Epilogues: their float64 twins and bounds, the struct they travel in, and which configuration a problem gets."""

import numpy as np
import pytest

from lowlevel import catalog, suite, tuned
from lowlevel.catalog import rules
from lowlevel.catalog.select import select
from lowlevel.contender import EPILOGUE_PARAMETER, Values
from lowlevel.dtypes import FP32
from lowlevel.errors import UsageError
from lowlevel.hardware import GPUS
from lowlevel.problems.epilogue import EPILOGUES
from lowlevel.problems.gemm import Gemm
from lowlevel.toolchain.build import build
from lowlevel.verify import check_output

FUSED = [k for k in catalog.kernels() if len(k.epilogues) > 1]


def in_fp32(problem, inputs):
    """What a kernel computes: an fp32 product, then the epilogue in fp32."""
    product = (inputs["A"].astype(np.float64) @ inputs["B"].astype(np.float64)).astype(np.float32)
    addend = inputs.get("bias", inputs.get("residual", np.float32(0)))
    x = product + addend
    if problem.epilogue == "bias_relu":
        return np.maximum(x, np.float32(0))
    if problem.epilogue == "bias_silu":
        return x / (np.float32(1) + np.exp(-x))
    return x


@pytest.mark.parametrize("name", EPILOGUES)
@pytest.mark.parametrize("kind", ["normal", "integer"])
def test_the_twin_accepts_fp32_and_nothing_else(name, kind):
    problem = Gemm(33, 65, 129, FP32, epilogue=name)
    inputs = problem.inputs(0, kind)
    parts = list(problem.expected(inputs, kind))
    right = in_fp32(problem, inputs)
    verdict = check_output(problem, parts, right)
    assert verdict.ok, verdict.reason
    bare = in_fp32(problem.product, problem.product.inputs(0, kind))
    assert check_output(problem, parts, bare).ok == (name == "none")
    moved = right.copy()
    moved[7] = np.roll(right[7], 1)
    assert not check_output(problem, parts, moved).ok


def test_the_same_operands_with_and_without_epilogue():
    problem = Gemm(5, 7, 9, FP32, epilogue="residual")
    assert [o.name for o in problem.operands()] == ["A", "B", "residual", "C"]
    assert [o.name for o in Gemm(5, 7, 9, FP32, epilogue="bias").operands()] == ["A", "B", "bias", "C"]
    assert np.array_equal(problem.inputs(3)["B"], problem.product.inputs(3)["B"])


def test_silu_is_not_exact_for_integers_and_steeper_than_one():
    problem = Gemm(8, 8, 16, FP32, epilogue="bias_silu")
    (part,) = problem.expected(problem.inputs(0, "integer"), "integer")
    assert part.bound is not None
    x = np.linspace(-30, 30, 60001)
    slope = np.max(np.abs(np.diff(EPILOGUES["bias_silu"].value(x, 0.0)) / np.diff(x)))
    assert 1 < slope < EPILOGUES["bias_silu"].slope


def test_what_silus_intrinsics_may_be_wrong_by_is_within_its_bound():
    """__expf: 2 + 1.173 |x| ulp of the exponential. __fdividef: 2 ulp, and 0 where the divisor is above 2^126."""
    x = np.linspace(-120, 120, 48001)
    ulp, divisor = 2.0**-23, 1 + np.exp(-x)
    exponential = (2 + 1.173 * np.abs(x)) * ulp * np.exp(-x) / divisor
    wrong = np.where(divisor > 2.0**126, 1.0, exponential + ulp / 2 + 2 * ulp) * np.abs(x) / divisor
    assert np.all(wrong <= EPILOGUES["bias_silu"].roundoff * np.abs(x))


def test_an_unknown_epilogue_is_refused_with_the_names():
    with pytest.raises(UsageError, match="no epilogue 'gelu'; there are: none, bias, bias_relu, bias_silu, residual"):
        Gemm(8, 8, 8, FP32, epilogue="gelu")


@pytest.mark.parametrize("kernel", FUSED, ids=lambda k: k.label)
def test_the_struct_has_the_size_that_kernels_declare(kernel):
    entry = build(catalog.request(kernel.variants()[0], kernel.archs[-1])).entries[kernel.entry]
    assert entry.parameters[-1].size == EPILOGUE_PARAMETER.itemsize == 24
    assert entry.parameters[-1].align == 8


def test_the_struct_points_at_the_operand_there_is():
    class There:
        def __init__(self, address):
            self.address = address

    class Machine:
        limits = GPUS["H200"]

    def struct(epilogue, buffers):
        problem = Gemm(8, 24, 8, FP32, epilogue=epilogue)
        variant = select([f"cuda:gemm/08*[{epilogue}]" if epilogue != "none" else "cuda:gemm/08*"])[0]
        return Values(Machine, variant, problem, buffers)["epilogue"]

    assert struct("none", {}).tolist() == (1.0, 24, 0, 0)
    assert struct("bias", {"bias": There(512)}).tolist() == (1.0, 24, 512, 0)
    assert struct("residual", {"residual": There(768)}).tolist() == (1.0, 24, 0, 768)


def test_each_epilogue_compiles_to_something_else():
    texts = {}
    for name in EPILOGUES:
        pattern = "cuda:gemm/05*" if name == "none" else f"cuda:gemm/05*[{name}]"
        texts[name] = build(catalog.request(select([pattern])[0], "sm_80")).ptx
    assert len(set(texts.values())) == len(EPILOGUES)


def h200():
    return GPUS["H200"]


@pytest.mark.parametrize(
    ("m", "n", "groups"), [(512, 512, 4), (1024, 1024, 4), (2048, 2048, 1), (2048, 2304, 4), (4096, 4096, 1)]
)
def test_a_configuration_for_each_shape_class(m, n, groups):
    variant = tuned.suited(select(["gemm/08_warp_tile"])[0], Gemm(m, n, 64, FP32), h200())
    assert variant.config["KGROUPS"] == groups
    assert variant.chosen_by == "rule"


def test_a_configuration_that_is_named_stays():
    (variant,) = select(["cuda:gemm/08_warp_tile[fp32,NN,128x256x16,s3,WM=64,WN=64,KGROUPS=1]"])
    assert tuned.suited(variant, Gemm(512, 512, 512, FP32), h200()) is variant
    assert variant.chosen_by == "named"


def test_a_suite_takes_the_suited_configuration_of_each_shape():
    groups = suite.selection(["gemm/08_warp_tile"], "1024,4096")
    found = suite.suited(suite.Suite("x", "x", 1.0, groups), h200())
    assert [g.variants[0].config["KGROUPS"] for g in found.groups] == [4, 1]


def test_shared_memory_of_the_ring_and_of_the_joined_sums():
    few, wide = (dict(c) for c in reversed(catalog.find(select(["gemm/08_warp_tile"])[0].name).kernel.configs))
    assert rules.ring_of_stages(wide, None, None) == 3 * 16 * (132 + 256) * 4
    assert rules.ring_of_stages(few, None, None) == 2 * 64 * (68 + 128) * 4
    assert rules.ring_of_stages(few | {"BK": 8}, None, None) == 4 * (64 * 128 // 2) * 4


def test_an_epilogue_is_chosen_only_by_its_word():
    assert {v.epilogue for v in select(["gemm/08*[fp32]"])} == {"none"}
    assert {v.epilogue for v in select(["gemm/08*[bias]"])} == {"bias"}
