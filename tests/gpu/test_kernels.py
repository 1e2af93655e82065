"""Every kernel against float64 on the GPU, on every architecture asked for that the GPU can run."""

import pytest
from conftest import runnable

from lowlevel import catalog, gpu_worker
from lowlevel.errors import UsageError
from lowlevel.problems.base import KINDS
from lowlevel.toolchain.arch import runs_on

DEADLINE_S = 120.0


@pytest.mark.parametrize("kind", KINDS)
def test_is_right(gpu, limits, built, variant, arch, problem, kind, seen):
    """Poisoned output, guarded buffers, twice the same bits; inputs normal and integer."""
    request = catalog.request(variant, arch)
    if not runs_on(request.arch, limits.capability):
        seen(variant, arch, f"skipped: {limits.name} is {limits.arch}")
        pytest.skip(f"{request.arch} does not run on {limits.name}")
    binary = runnable(built[variant.name, arch], limits)
    if refusal := variant.refusal(problem):
        with pytest.raises(UsageError, match=refusal[:20]):
            gpu.call(gpu_worker.verify, variant.name, problem, binary, 0, kind, deadline=DEADLINE_S)
        return
    verdict = gpu.call(gpu_worker.verify, variant.name, problem, binary, 0, kind, 2, deadline=DEADLINE_S)
    seen(variant, arch, "ran" if verdict.ok else "failed")
    assert verdict.ok, verdict.reason
