"""Tensor-core kernels, twenty times over: the same bits each time, with more tiles than SMs and with slices of K."""

import pytest

from lowlevel import catalog, gpu_worker
from lowlevel.problems.make import make_problem
from lowlevel.toolchain.arch import parse_arch, runs_on
from lowlevel.toolchain.build import build

DEADLINE_S = 120.0
REPEATS = 20
VARIANTS = [v for v in catalog.variants() if v.kernel.operation == "gemm" and v.type.unit != "fp32"]
#: 300 and more tiles of 128 x 128, cut ones among them; few tiles and a long sum.
SHAPES = ((2305, 2177, 200), (130, 129, 4100))


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "x".join(map(str, shape)))
@pytest.mark.parametrize("variant", VARIANTS, ids=lambda v: v.name)
def test_repeats_give_the_same_bits(gpu, variant, shape):
    limits = gpu.call(gpu_worker.limits, deadline=DEADLINE_S)
    problem = make_problem(variant, shape)
    chosen = variant.suited(problem, limits)
    request = catalog.request(chosen, parse_arch(limits.capability))
    if not runs_on(request.arch, limits.capability):
        pytest.skip(f"{request.arch} does not run on {limits.name}")
    binary = build(request)
    for kind in ("normal", "integer"):
        verdict = gpu.call(gpu_worker.verify, chosen.name, problem, binary, 0, kind, REPEATS, deadline=DEADLINE_S)
        assert verdict.ok, f"{problem.label}, {kind}: {verdict.reason}"
