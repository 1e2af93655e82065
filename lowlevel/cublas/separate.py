"""A product with an epilogue where the library fuses none: its call, then an elementwise kernel over C."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from lowlevel.compare import support_function
from lowlevel.contender import Packets, epilogue_parameter
from lowlevel.cublas.arguments import separate_refusal
from lowlevel.cublas.constants import WORKSPACE_BYTES
from lowlevel.cublas.contenders import GemmContender
from lowlevel.device.protocol import Buffer, Device, Function, LaunchShape
from lowlevel.errors import UsageError
from lowlevel.problems.gemm import Gemm

#: Threads of a block along a row and over rows; each has four neighbouring columns, as cu/support/finish.cu says.
_BLOCK = (32, 8)
_COLUMNS = 4 * _BLOCK[0]
#: CUDA's limit of gridDim.y; the kernel's rows go round.
_MOST_BLOCKS = 65535


class SeparateContender:
    """`library/cublas` for a problem with an epilogue: what a framework that fuses nothing does.

    C is written, read and written again. Its rivals are the kernels that finish a sum before they store it.
    """

    name = "library/cublas"
    workspace_bytes = WORKSPACE_BYTES

    def __init__(self):
        self.config_text = ""
        self._product = GemmContender()
        self._finish: dict[tuple[Device, str], Function] = {}

    def bind(self, device: Device, problem: Gemm, buffers: Mapping[str, Buffer]) -> Packets:
        """Raises UsageError for a problem that the call does not take, MissingError without cuBLAS."""
        if refusal := separate_refusal(problem):
            raise UsageError(f"{self.name} does not take {problem.label}: {refusal}")
        product = self._product.bind(device, problem.product, buffers)
        self.config_text = f"{self._product.config_text}, then {problem.epilogue}"
        arguments = [buffers["C"], np.int32(problem.m), np.int32(problem.n), np.int32(problem.ldc)]
        arguments.append(epilogue_parameter(problem, buffers))
        finish = device.bind(self._function(device, problem.epilogue), _shape(problem), arguments)
        return Packets([product, finish])

    def _function(self, device: Device, epilogue: str) -> Function:
        """Loaded once, however many operand sets are bound."""
        key = (device, epilogue)
        if key not in self._finish:
            defines = {f"EPILOGUE_{epilogue.upper()}": 1}
            self._finish[key] = support_function(device, "finish.cu", "finish", **defines)
        return self._finish[key]


def _shape(problem: Gemm) -> LaunchShape:
    across, down = -(-problem.n // _COLUMNS), -(-problem.m // _BLOCK[1])
    return LaunchShape((across, min(down, _MOST_BLOCKS), 1), (*_BLOCK, 1))
