"""The program that `lowlevel profile` gives to Nsight Compute, on the GPU; and Nsight Compute itself where it is."""

import json
import subprocess
import sys

import pytest

from lowlevel import doctor
from lowlevel.catalog.select import select
from lowlevel.device.cuda.driver import probe

pytestmark = pytest.mark.skipif(bool(probe()), reason=str(probe()))

TILED = "cuda:gemm/02_tiled"


def test_the_target_runs():
    name = select([TILED])[0].name
    command = [sys.executable, "-m", "lowlevel.commands.profile_target", name, "257x129x65", "--launches", "2"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(doctor.ncu() is None, reason="Nsight Compute is not on the PATH")
@pytest.mark.parametrize("what", ["overview", "memory", "shared", "tensor", "stalls"])
def test_every_question_has_an_answer(what):
    command = [sys.executable, "-m", "lowlevel", "profile", TILED, "512", "--what", what, "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    if doctor.COUNTERS_KEPT in done.stderr:
        pytest.skip(doctor.COUNTERS_KEPT)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert rows[0]["figure"] == "duration"
    assert rows[0]["value"] > 0
    assert [r["figure"] for r in rows if r["value"] == "not measured"] == []


@pytest.mark.skipif(doctor.ncu() is None, reason="Nsight Compute is not on the PATH")
def test_instructions_are_counted():
    command = [sys.executable, "-m", "lowlevel", "profile", TILED, "512", "--source"]
    done = subprocess.run(command, capture_output=True, text=True)
    if doctor.COUNTERS_KEPT in done.stderr:
        pytest.skip(doctor.COUNTERS_KEPT)
    assert done.returncode == 0, done.stderr
