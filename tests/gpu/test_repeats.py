"""Tensor-core kernels, twenty times over, and Hopper's a thousand times, whose warps meet at nothing but mbarriers: the
same bits each time, with more tiles than SMs, an odd number of them, and with slices of K."""

import pytest
from conftest import runnable

from lowlevel import catalog, gpu_worker, tuned
from lowlevel.problems.make import make_problem

DEADLINE_S = 120.0
REPEATS, HOPPER_REPEATS = 20, 1000
VARIANTS = [v for v in catalog.variants() if v.kernel.operation == "gemm" and v.type.unit != "fp32"]
#: 19 x 18 tiles of 128 x 128 or 19 x 9 of 128 x 256, cut ones among them; few tiles and a long sum.
SHAPES = ((2305, 2177, 200), (130, 129, 4100))


@pytest.fixture(scope="module")
def binaries(request, built_for_gpu, limits):
    params = [item.callspec.params for item in request.session.items if item.path == request.path]
    return built_for_gpu([suited(p["variant"], p["shape"], limits)[0] for p in params])


def suited(variant, shape, limits):
    """(the variant in the configuration that suits, the problem). A kernel that has no way for such a shape gets the
    next one in whole tiles of 32."""
    problem = make_problem(variant, shape)
    if variant.refusal(problem):
        problem = make_problem(variant, tuple(-(-n // 32) * 32 for n in shape))
        assert not variant.refusal(problem)
    return tuned.suited(variant, problem, limits), problem


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "x".join(map(str, shape)))
@pytest.mark.parametrize("variant", VARIANTS, ids=lambda v: v.name)
def test_repeats_give_the_same_bits(gpu, limits, binaries, variant, shape):
    chosen, problem = suited(variant, shape, limits)
    binary = runnable(binaries[chosen.name], limits)
    repeats = HOPPER_REPEATS if variant.kernel.archs == ("sm_90a",) else REPEATS
    for kind in ("normal", "integer"):
        verdict = gpu.call(gpu_worker.verify, chosen.name, problem, binary, 0, kind, repeats, deadline=DEADLINE_S)
        assert verdict.ok, f"{problem.label}, {kind}: {verdict.reason}"
