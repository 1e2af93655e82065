"""wgmma by the formulas: what stands in for a device where a recorder is tested."""

import numpy as np

from lowlevel.study import warpgroup
from lowlevel.study.descriptor import MAJORS
from lowlevel.study.fragment import FRAGMENTS


def stand_in(monkeypatch) -> None:
    monkeypatch.setattr(warpgroup, "of_shared", of_shared)
    monkeypatch.setattr(warpgroup, "of_registers", of_registers)


def of_shared(_device, asked, memory, a, b):
    """D = A B by the formulas, each thread's sums."""
    defines = dict(asked.defines)
    major = {name: MAJORS[int(defines[f"{name}_MN_MAJOR"])] for name in "AB"}
    A = gathered(memory, a, major["A"], 64)
    return dealt(A @ gathered(memory, b, major["B"], int(defines["N"])).T)


def of_registers(_device, asked, memory, A, b):
    defines, it = dict(asked.defines), FRAGMENTS["wgmma.m64k16.a"]
    values = np.zeros((64, 16))
    values[warpgroup.places(it)] = A
    major = MAJORS[int(defines["B_MN_MAJOR"])]
    return dealt(values @ gathered(memory, b, major, int(defines["N"])).T)


def gathered(memory, it, major, rows) -> np.ndarray:
    found = np.zeros((rows, 16))
    for row, k in np.ndindex(found.shape):
        place = (row, 2 * k) if major == "K" else (k, 2 * row)
        found[row, k] = memory[it.address(major, *place) // 2]
    return found


def dealt(D) -> np.ndarray:
    return warpgroup.registers(D, FRAGMENTS[f"wgmma.m64n{D.shape[1]}k16.d"]).astype(np.float32).reshape(128, -1)
