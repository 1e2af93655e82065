"""Which library calls compute a problem. They are contenders like the kernels, and rows like theirs."""

from __future__ import annotations

from collections.abc import Mapping

from lowlevel.contender import Contender
from lowlevel.cublas.arguments import gemm_ex_refusal, lt_refusal, separate_refusal
from lowlevel.cublas.contenders import GemmContender
from lowlevel.cublas.lt import LtContender
from lowlevel.cublas.separate import SeparateContender
from lowlevel.device.protocol import Buffer, Device, Stream
from lowlevel.problems.base import Problem


class CopyCall:
    """One device-to-device copy."""

    def __init__(self, source: Buffer, target: Buffer):
        self._source, self._target = source, target

    def launch(self, stream: Stream) -> None:
        self._target.copy_from(self._source, stream)


class CopyContender:
    """`library/copy`: the driver's device-to-device copy of A's bytes to C.

    For a transpose it is a yardstick, not a contender: it moves the same bytes to other places.
    """

    name = "library/copy"
    workspace_bytes = 0
    config_text = ""

    def bind(self, device: Device, problem: Problem, buffers: Mapping[str, Buffer]) -> CopyCall:  # noqa: ARG002
        return CopyCall(buffers["A"], buffers["C"])


def contenders_of(problem: Problem) -> list[Contender]:
    """The library rows of a problem, the usual call first; empty where no library computes it."""
    if problem.operation in ("transpose", "copy"):
        source, target = problem.operands()
        return [CopyContender()] if source.nbytes == target.nbytes else []
    if problem.operation != "gemm":
        return []
    found: list[Contender] = []
    if problem.epilogue != "none":
        found += [SeparateContender()] if separate_refusal(problem) is None else []
    elif gemm_ex_refusal(problem) is None:
        found.append(GemmContender())
        if problem.type.dtype == "fp32":
            found.append(GemmContender(pedantic=True))
    if lt_refusal(problem) is None:
        found.append(LtContender())
        if problem.type.dtype == "fp8":
            found.append(LtContender(fast_accumulation=False))
    return found


def computes(problem: Problem, name: str) -> bool:
    """Whether that library call computes the problem, rather than only moving as many bytes."""
    return not (name == "library/copy" and problem.operation == "transpose")


def usual(problem: Problem) -> str | None:
    """The library row that `vs_cublas` compares with: cuBLAS as it comes (an epilogue then is a second kernel), or
    cuBLASLt where there is only that, as for fp8, or the copy."""
    contenders = contenders_of(problem)
    return contenders[0].name if contenders else None
