"""cublasLtMatmul as a contender: every algorithm that the heuristics offer, and the one chosen of them."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from ctypes import addressof, byref, c_int, c_int8, c_int32, c_size_t, c_uint32, c_void_p, sizeof
from typing import NamedTuple

from lowlevel.cublas import constants as c
from lowlevel.cublas.arguments import column_major, compute_name, lt_refusal
from lowlevel.cublas.constants import WORKSPACE_BYTES
from lowlevel.cublas.contenders import Scalars, Session, prepared
from lowlevel.cublas.libraries import Heuristic
from lowlevel.device.protocol import Buffer, Device, Stream
from lowlevel.errors import UsageError
from lowlevel.problems.gemm import Gemm

HEURISTICS = 16
#: What cuBLASLt assumes of a pointer unless told less.
_MOST_ALIGNED = 256


class Pointers(NamedTuple):
    """Addresses that an operation holds, 0 where the problem has no such operand. Scales in the library's order."""

    bias: int
    first_scale: int = 0
    second_scale: int = 0


class LtPlan:
    """A product described to cuBLASLt, and its heuristics' answers, best guess first.

    D = A B + beta C in the library's terms: D is our C, and C the residual where there is one.
    alignments: bytes, of the buffers of A, B, C and D in the library's order. pointers: what the operation points to;
    of the bias the heuristics look at the alignment alone.
    """

    def __init__(self, session: Session, problem: Gemm, alignments: Sequence[int], pointers: Pointers, fast: bool):
        self.session, self.problem = session, problem
        self._fast_accumulation = fast
        self._lt = session.libraries.lt
        self._made: list[tuple] = []
        weakref.finalize(self, _destroy, self._made).atexit = False
        self.arguments = g = column_major(problem)
        self._descriptions: dict[Pointers, c_void_p] = {}
        type_ = problem.type
        self.first = self._layout(type_.operand, (g.k, g.m) if g.transa else (g.m, g.k), g.lda)
        self.second = self._layout(type_.operand, (g.n, g.k) if g.transb else (g.k, g.n), g.ldb)
        self.out = self._layout(type_.output, (g.m, g.n), g.ldc)
        self.adds = problem.finish.addend == "residual"
        self.source = self._layout(type_.output, (g.m, g.n), problem.n) if self.adds else self.out
        self.heuristics = self._ask(alignments, pointers)

    def _create(self, what: str, *arguments) -> c_void_p:
        """A new cuBLASLt object, destroyed with the plan."""
        made = c_void_p()
        created = getattr(self._lt, f"cublasLt{what}Create")(byref(made), *arguments)
        self.session.check(created, f"creating a cublasLt{what}")
        self._made.append((getattr(self._lt, f"cublasLt{what}Destroy"), made))
        return made

    def _set(self, what: str, target: c_void_p, attribute: int, value) -> None:
        done = getattr(self._lt, f"cublasLt{what}SetAttribute")(target, attribute, addressof(value), sizeof(value))
        self.session.check(done, f"setting attribute {attribute} of a cublasLt{what}")

    def description(self, pointers: Pointers) -> c_void_p:
        """The operation, which holds addresses too: operands that share a plan have descriptors of their own, destroyed
        with the plan."""
        if pointers not in self._descriptions:
            self._descriptions[pointers] = self._describe(pointers)
        return self._descriptions[pointers]

    def _describe(self, pointers: Pointers) -> c_void_p:
        type_ = self.problem.type
        scalars = c.DATA_TYPE[type_.accumulate]
        description = self._create("MatmulDesc", c.COMPUTE[compute_name(type_)], scalars)
        attributes = {c.DESC_TRANSA: c_int32(self.arguments.transa), c.DESC_TRANSB: c_int32(self.arguments.transb)}
        if type_.scaled:
            scales = {c.DESC_A_SCALE_POINTER: pointers.first_scale, c.DESC_B_SCALE_POINTER: pointers.second_scale}
            attributes |= {attribute: c_void_p(address) for attribute, address in scales.items()}
            attributes |= {c.DESC_FAST_ACCUM: c_int8(self._fast_accumulation)}
        if pointers.bias:
            attributes |= {c.DESC_EPILOGUE: c_uint32(c.EPILOGUE[self.problem.epilogue])}
            attributes |= {c.DESC_BIAS_POINTER: c_void_p(pointers.bias)}
        for attribute, value in attributes.items():
            self._set("MatmulDesc", description, attribute, value)
        return description

    def _layout(self, element: str, shape: tuple[int, int], leading: int) -> c_void_p:
        """A column-major matrix of `shape` rows and columns in memory."""
        return self._create("MatrixLayout", c.DATA_TYPE[element], *shape, leading)

    def _ask(self, alignments: Sequence[int], pointers: Pointers) -> list[Heuristic]:
        preference = self._create("MatmulPreference")
        self._set("MatmulPreference", preference, c.PREF_MAX_WORKSPACE_BYTES, c_size_t(WORKSPACE_BYTES))
        self._set("MatmulPreference", preference, c.PREF_REDUCTION_SCHEMES, c_uint32(c.FULL_PRECISION_SCHEMES))
        for attribute, alignment in zip(c.PREF_MIN_ALIGNMENT, alignments, strict=True):
            self._set("MatmulPreference", preference, attribute, c_uint32(alignment))
        found, count = (Heuristic * HEURISTICS)(), c_int()
        layouts = (self.first, self.second, self.source, self.out)
        status = self._lt.cublasLtMatmulAlgoGetHeuristic(
            self.session.lt_handle, self.description(pointers), *layouts, preference, HEURISTICS, found, byref(count)
        )
        if status == c.NOT_SUPPORTED:
            return []
        self.session.check(status, f"asking cuBLASLt's heuristics for {self.problem.label}")
        return [heuristic for heuristic in found[: count.value] if heuristic.state == 0]


def _destroy(made: list[tuple]) -> None:
    for destroy, thing in made:
        destroy(thing)


class LtCall:
    """A prepared cublasLtMatmul call with one algorithm of a plan. `description` is `lt #3 of 16`."""

    def __init__(self, plan: LtPlan, index: int, buffers: Mapping[str, Buffer]):
        self.description = f"lt #{index + 1} of {len(plan.heuristics)}"
        self._plan = plan  # owns the descriptors and the algorithm that the arguments point to
        session, g = plan.session, plan.arguments
        self._scalars = Scalars(plan.problem.type.accumulate, beta=int(plan.adds))
        first, second, source, out = (buffers[name].address for name in (g.first, g.second, _source(plan.problem), "C"))
        description = plan.description(_pointers(plan.problem, buffers))
        self._function = session.libraries.lt.cublasLtMatmul
        arguments = (session.lt_handle, description, self._scalars.alpha, first, plan.first, second, plan.second)
        arguments += (self._scalars.beta, source, plan.source, out, plan.out, addressof(plan.heuristics[index].algo))
        arguments += (session.workspace.address, WORKSPACE_BYTES)
        self._arguments = prepared(self._function, arguments)

    def launch(self, stream: Stream) -> None:
        if status := self._function(*self._arguments, stream.handle):
            self._plan.session.check(status, "calling cublasLtMatmul")


class LtContender:
    """`library/cublaslt`: one algorithm of the up to 16 that the heuristics offer.

    And `library/cublaslt_promoted`, for fp8, without fast accumulation.

    `candidates` are all of them, to be timed; `choose` says which `bind` takes, the heuristics' first unless told.
    fast_accumulation: fp8 only, sums on the tensor cores alone, as cuBLASLt's users run it; off, they are promoted
    to fp32 on the way.
    """

    workspace_bytes = WORKSPACE_BYTES

    def __init__(self, fast_accumulation: bool = True):
        self.name = "library/cublaslt" if fast_accumulation else "library/cublaslt_promoted"
        self.config_text = ""
        self._fast_accumulation = fast_accumulation
        self._choice = 0
        self._plans: dict[tuple, LtPlan] = {}

    def choose(self, index: int) -> None:
        """index: into `candidates`."""
        self._choice = index

    def candidates(self, device: Device, problem: Gemm, buffers: Mapping[str, Buffer]) -> list[LtCall]:
        """A call for each algorithm offered, in the heuristics' order. Raises as `bind` does."""
        plan = self._plan(device, problem, buffers)
        return [LtCall(plan, index, buffers) for index in range(len(plan.heuristics))]

    def bind(self, device: Device, problem: Gemm, buffers: Mapping[str, Buffer]) -> LtCall:
        """Raises UsageError for a problem that cuBLASLt does not take, MissingError without cuBLASLt."""
        plan = self._plan(device, problem, buffers)
        offered = len(plan.heuristics)
        if not 0 <= self._choice < offered:
            raise UsageError(f"{self.name} has no algorithm {self._choice} for {problem.label}: 0 to {offered - 1}")
        call = LtCall(plan, self._choice, buffers)
        fast = problem.type.dtype == "fp8" and self._fast_accumulation
        self.config_text = call.description + (", fast accumulation" if fast else "")
        return call

    def _plan(self, device: Device, problem: Gemm, buffers: Mapping[str, Buffer]) -> LtPlan:
        if refusal := lt_refusal(problem):
            raise UsageError(f"{self.name} does not take {problem.label}: {refusal}")
        alignments = tuple(_alignment(buffers[name].address) for name in ("B", "A", _source(problem), "C"))
        pointers = _pointers(problem, buffers)
        key = (device, problem, alignments, _alignment(pointers.bias))
        if key not in self._plans:
            self._plans[key] = LtPlan(Session.of(device), problem, alignments, pointers, self._fast_accumulation)
        plan = self._plans[key]
        if not plan.heuristics:
            epilogue = "" if problem.epilogue == "none" else f" {problem.epilogue}"
            text = f"{problem.type.name} {problem.layout}{epilogue}"
            raise UsageError(f"{self.name} does not take {problem.label}: cuBLASLt has no {text} algorithm for it here")
        return plan


def _source(problem: Gemm) -> str:
    """Our operand that is the library's C: the residual, else our C, which beta = 0 leaves unread."""
    return "residual" if problem.finish.addend == "residual" else "C"


def _pointers(problem: Gemm, buffers: Mapping[str, Buffer]) -> Pointers:
    bias = buffers["bias"].address if problem.finish.addend == "bias" else 0
    if not problem.type.scaled:
        return Pointers(bias)
    g = column_major(problem)
    return Pointers(bias, *(buffers[f"scale_{name.lower()}"].address for name in (g.first, g.second)))


def _alignment(address: int) -> int:
    """The largest power of two, up to 256, that divides an address."""
    return min(_MOST_ALIGNED, address & -address)
