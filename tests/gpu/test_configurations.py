"""What the defaults leave out, on the GPU: other configurations and every epilogue, at a few shapes."""

import itertools

import pytest
from conftest import runnable

from lowlevel import catalog, gpu_worker
from lowlevel.catalog import space
from lowlevel.catalog.select import all_variants
from lowlevel.problems.make import make_problem

DEADLINE_S = 120.0
#: Whole tiles and cut ones, fours that end with a row and fours that do not.
SHAPES = {
    "gemm": ((256, 256, 64), (257, 129, 65), (300, 516, 100), (5, 3, 7)),
    "transpose": ((512, 512), (257, 129), (516, 300)),
    "copy": ((512, 512), (257, 129)),
}


def pairs_of(variant) -> set:
    """Every two of the variant's type, layout, configuration and epilogue."""
    axes = ("type", variant.type.name), ("layout", variant.layout)
    axes += ("config", variant.config_text), ("epilogue", variant.epilogue)
    return set(itertools.combinations(axes, 2))


def pairwise(kernel, variants) -> list:
    """So many of a kernel's variants that with the defaults, which are tested elsewhere, they have every two of a type,
    a layout, a configuration and an epilogue that any variant has. Each time, that with the most that are new."""
    seen = set().union(*map(pairs_of, kernel.variants()))
    left = {variant.name: (variant, pairs_of(variant)) for variant in variants if variant.kernel is kernel}
    chosen = []
    while True:
        variant, pairs = max(left.values(), key=lambda found: len(found[1] - seen))
        if pairs <= seen:
            return chosen
        chosen.append(variant)
        seen |= pairs


def pytest_generate_tests(metafunc):
    if "other" in metafunc.fixturenames:
        everything = all_variants()
        if metafunc.config.getoption("--full"):
            defaults = {variant.name for variant in catalog.variants()}
            others = [variant for variant in everything if variant.name not in defaults]
        else:
            others = [variant for kernel in catalog.kernels() for variant in pairwise(kernel, everything)]
        metafunc.parametrize("other", others, ids=lambda v: v.name)


@pytest.fixture(scope="module")
def binaries(request, built_for_gpu):
    params = [item.callspec.params for item in request.session.items if item.path == request.path]
    return built_for_gpu([p["other"] for p in params if "other" in p])


def test_is_right(gpu, limits, binaries, other):
    variant, binary = other, runnable(binaries[other.name], limits)
    for shape in SHAPES[variant.kernel.operation]:
        problem = make_problem(variant, shape)
        if variant.refusal(problem) or space.fits(variant.kernel, variant.config, problem, limits):
            continue
        for kind in ("normal", "integer"):
            verdict = gpu.call(gpu_worker.verify, variant.name, problem, binary, 0, kind, 2, deadline=DEADLINE_S)
            assert verdict.ok, f"{problem.label}, {kind}: {verdict.reason}"


@pytest.mark.parametrize("kernel", catalog.kernels(), ids=lambda k: k.label)
def test_every_two_values_meet(kernel):
    """Of this file's own choice, which needs no GPU."""
    every = [variant for variant in all_variants() if variant.kernel is kernel]
    chosen = pairwise(kernel, every)
    assert set().union(*map(pairs_of, kernel.variants() + chosen)) == set().union(*map(pairs_of, every))
    assert {v.config_text for v in kernel.variants() + chosen} == {v.config_text for v in every}
    assert len(chosen) <= len(every) - len(kernel.variants())
