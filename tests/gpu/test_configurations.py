"""What the defaults leave out, on the GPU: every other configuration and every epilogue, at a few shapes."""

import pytest

from lowlevel import catalog, gpu_worker
from lowlevel.catalog.select import all_variants
from lowlevel.problems.make import make_problem
from lowlevel.toolchain.arch import parse_arch, runs_on
from lowlevel.toolchain.build import build

DEADLINE_S = 120.0
DEFAULTS = {variant.name for variant in catalog.variants()}
OTHERS = [variant for variant in all_variants() if variant.name not in DEFAULTS]
#: Whole tiles and cut ones, fours that end with a row and fours that do not.
SHAPES = {
    "gemm": ((256, 256, 64), (257, 129, 65), (300, 516, 100), (5, 3, 7)),
    "transpose": ((512, 512), (257, 129), (516, 300)),
    "copy": ((512, 512), (257, 129)),
}


@pytest.mark.parametrize("other", OTHERS, ids=lambda v: v.name)
def test_is_right(gpu, other):
    variant = other
    limits = gpu.call(gpu_worker.limits, deadline=DEADLINE_S)
    try:
        request = catalog.request(variant, parse_arch(limits.capability))
    except Exception as error:
        pytest.skip(str(error))
    if not runs_on(request.arch, limits.capability):
        pytest.skip(f"{request.arch} does not run on {limits.name}")
    binary = build(request)
    for shape in SHAPES[variant.kernel.operation]:
        problem = make_problem(variant, shape)
        if variant.refusal(problem):
            continue
        for kind in ("normal", "integer"):
            verdict = gpu.call(gpu_worker.verify, variant.name, problem, binary, 0, kind, 2, deadline=DEADLINE_S)
            assert verdict.ok, f"{problem.label}, {kind}: {verdict.reason}"
