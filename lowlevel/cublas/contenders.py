"""cublasSgemm and cublasGemmEx as contenders, and the handles that every library call shares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ctypes import byref, c_void_p
from typing import ClassVar

import numpy as np

from lowlevel.cublas import constants as c
from lowlevel.cublas.arguments import column_major, compute_name, gemm_ex_refusal
from lowlevel.cublas.constants import WORKSPACE_BYTES
from lowlevel.cublas.libraries import load
from lowlevel.device.protocol import Buffer, Device, Stream
from lowlevel.dtypes import ELEMENTS
from lowlevel.errors import UsageError
from lowlevel.problems.gemm import Gemm


class Session:
    """One handle of each library for a device, with one workspace. Shared by every library row."""

    _sessions: ClassVar[dict[Device, Session]] = {}

    def __init__(self, device: Device):
        self.libraries = load()
        self.handle, self.lt_handle = c_void_p(), c_void_p()
        self.check(self.libraries.cublas.cublasCreate_v2(byref(self.handle)), "creating a cuBLAS handle")
        self.libraries.check_pair(self.handle)
        self.check(self.libraries.lt.cublasLtCreate(byref(self.lt_handle)), "creating a cuBLASLt handle")
        self.workspace = device.allocate(WORKSPACE_BYTES)
        self._stream: Stream | None = None
        self._math: int | None = None

    @classmethod
    def of(cls, device: Device) -> Session:
        """The device's session, made when first asked for."""
        if device not in cls._sessions:
            cls._sessions[device] = cls(device)
        return cls._sessions[device]

    def check(self, status: int, doing: str) -> None:
        self.libraries.check(status, doing)

    def use(self, stream: Stream, math: int) -> None:
        """Points the handle at a stream and a math mode, if it is not there already.

        Setting the stream takes the workspace away, so it is given again.
        """
        if stream is not self._stream:
            self.check(self.libraries.cublas.cublasSetStream_v2(self.handle, stream.handle), "setting the stream")
            given = self.libraries.cublas.cublasSetWorkspace_v2(self.handle, self.workspace.address, WORKSPACE_BYTES)
            self.check(given, "setting the workspace")
            self._stream = stream
        if math != self._math:
            self.check(self.libraries.cublas.cublasSetMathMode(self.handle, math), "setting the math mode")
            self._math = math


class Scalars:
    """alpha = 1 and beta in host memory, in the type of the computation: cuBLAS reads them by address."""

    def __init__(self, accumulate: str, beta: int = 0):
        """accumulate: fp32, fp16 or int32, as in `dtypes.Type`. beta: 1 to add the C operand, 0 not to read it."""
        self._values = np.array([1, beta], ELEMENTS[accumulate].numpy)
        self.alpha = self._values.ctypes.data
        self.beta = self.alpha + self._values.itemsize


def prepared(function, values: Sequence) -> tuple:
    """The arguments as ctypes objects, so that a launch converts none. The function may take more after them."""
    return tuple(v if isinstance(v, kind) else kind(v) for kind, v in zip(function.argtypes, values, strict=False))


class GemmCall:
    """A prepared cublasSgemm (fp32) or cublasGemmEx call."""

    def __init__(self, session: Session, problem: Gemm, buffers: Mapping[str, Buffer], math: int):
        self._session, self._math = session, math
        g, type_ = column_major(problem), problem.type
        self._scalars = Scalars(type_.accumulate)
        alpha, beta = self._scalars.alpha, self._scalars.beta
        first, second, out = (buffers[name].address for name in (g.first, g.second, "C"))
        shape = (session.handle, g.transa, g.transb, g.m, g.n, g.k, alpha)
        if type_.dtype == "fp32":
            self._name, self._function = "cublasSgemm", session.libraries.cublas.cublasSgemm_v2
            arguments = (*shape, first, g.lda, second, g.ldb, beta, out, g.ldc)
        else:
            self._name, self._function = "cublasGemmEx", session.libraries.cublas.cublasGemmEx
            operand, output = c.DATA_TYPE[type_.operand], c.DATA_TYPE[type_.output]
            arguments = (*shape, first, operand, g.lda, second, operand, g.ldb, beta, out, output, g.ldc)
            arguments += (c.COMPUTE[compute_name(type_)], c.GEMM_DEFAULT)
        self._arguments = prepared(self._function, arguments)

    def launch(self, stream: Stream) -> None:
        self._session.use(stream, self._math)
        if status := self._function(*self._arguments):
            self._session.check(status, f"calling {self._name}")


class GemmContender:
    """`library/cublas`: cublasSgemm for fp32, cublasGemmEx for the rest, in default math: never TF32 for fp32.

    Partial sums that are joined at the end (split-K) stay fp32. Left to itself cuBLAS may round them to 16 bits, and
    then its fp16 and bf16 results lie outside the error bound of fp32 accumulation.

    pedantic: `library/cublas_pedantic`, which asks for no shortcuts either.
    """

    workspace_bytes = WORKSPACE_BYTES

    def __init__(self, pedantic: bool = False):
        self.name = "library/cublas_pedantic" if pedantic else "library/cublas"
        self.config_text = ""
        self._pedantic = pedantic

    def bind(self, device: Device, problem: Gemm, buffers: Mapping[str, Buffer]) -> GemmCall:
        """Raises UsageError for a problem that cuBLAS does not take, MissingError without cuBLAS."""
        if refusal := gemm_ex_refusal(problem):
            raise UsageError(f"{self.name} does not take {problem.label}: {refusal}")
        mode = "pedantic" if self._pedantic else "default"
        sgemm = problem.type.dtype == "fp32"
        self.config_text = f"sgemm {mode}" if sgemm else f"gemmEx {compute_name(problem.type)}"
        math = (c.MATH_PEDANTIC if self._pedantic else c.MATH_DEFAULT) | c.MATH_FULL_PRECISION_REDUCTION
        return GemmCall(Session.of(device), problem, buffers, math)
