"""Exported folders on a GPU: both callers load, launch and check without this project."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lowlevel import catalog, cli
from lowlevel.catalog.select import one_kernel
from lowlevel.commands.export import problem_of
from lowlevel.errors import UsageError
from lowlevel.toolchain.headers import cuda_include_dirs

#: Every kernel of the catalog, each at a shape with tails, or a probe's own.
SHAPES = {"gemm": ["264x136x72"], "probe": []}


@pytest.fixture(params=[variant.name for variant in catalog.variants()])
def exported(request, device, tmp_path, monkeypatch) -> Path:
    """The folder of one variant, exported for this GPU."""
    variant = one_kernel(request.param)[0]
    try:
        catalog.request(variant, device.limits.arch)
    except UsageError as error:
        pytest.skip(str(error))
    shape = SHAPES.get(variant.kernel.operation, ["200x136"])
    if refusal := variant.refusal(problem_of(variant, "".join(shape))):
        pytest.skip(refusal)
    assert cli.main(["export", variant.name, *shape, "-o", str(tmp_path)]) == 0
    # The callers must not find this project, nor its folder of compiled kernels.
    monkeypatch.delenv("PYTHONPATH", raising=False)
    return tmp_path


def run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", "")


def test_the_python_caller(exported):
    run([sys.executable, "call.py"], exported)


def test_the_c_caller(exported):
    run([compiled(exported)], exported)


def compiled(folder: Path) -> str:
    """The C caller as a program, or a skip that says what is missing."""
    compiler = shutil.which("cc")
    places = [p for p in (*cuda_include_dirs(), Path("/usr/local/cuda/include")) if (p / "cuda.h").is_file()]
    if not compiler or not places:
        pytest.skip("no C compiler (cc)" if not compiler else "no cuda.h")
    said = ""
    for library in ("-lcuda", "-l:libcuda.so.1"):
        command = [compiler, "call.c", f"-I{places[0]}", "-o", "call", library]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        if done.returncode == 0:
            return os.path.join(".", "call")
        said = done.stderr
    if "call.c:" in said:
        pytest.fail(said)
    pytest.skip("the linker finds no libcuda")
