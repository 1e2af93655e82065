"""cuBLAS's callers against a library that runs on the host: it reads and writes column-major memory through the very
arguments that it is given, so a wrong order, type, size or scalar gives a wrong product."""

# The fakes have the names and arguments of what they stand for, used or not.
# ruff: noqa: N802, N815

from __future__ import annotations

import ctypes
import dataclasses
import gc
import itertools
import math
import sys
import types

import numpy as np
import pytest

from lowlevel.catalog import library
from lowlevel.cublas import contenders, libraries, separate
from lowlevel.cublas.arguments import column_major, compute_name, gemm_ex_refusal, lt_refusal, separate_refusal
from lowlevel.cublas.constants import STATUS, WORKSPACE_BYTES
from lowlevel.cublas.contenders import GemmContender, Session
from lowlevel.cublas.lt import HEURISTICS, LtContender
from lowlevel.cublas.separate import SeparateContender
from lowlevel.dtypes import BF16, ELEMENTS, FP8, FP16, FP16_ACC16, FP32, INT8, MOVE32, TF32
from lowlevel.errors import DeviceError, MissingError, UsageError
from lowlevel.problems.epilogue import EPILOGUES
from lowlevel.problems.gemm import LAYOUTS, Gemm
from lowlevel.problems.move import Copy, Transpose
from lowlevel.verify import check_output

# Written here again from the manual, so that a wrong number in the package is not its own witness.
ELEMENT_OF = {0: "fp32", 2: "fp16", 3: "int8", 10: "int32", 14: "bf16", 28: "fp8"}
SCALAR_OF = {64: "fp16", 68: "fp32", 72: "int32", 77: "fp32"}


def memory(address: int, element: str, count: int) -> np.ndarray:
    """The host memory behind a 'device' address."""
    dtype = ELEMENTS[element].numpy
    raw = (ctypes.c_uint8 * (count * dtype.itemsize)).from_address(address)
    return np.frombuffer(raw, np.uint8).view(dtype)


def column_major_view(address: int, element: str, rows: int, columns: int, leading: int) -> np.ndarray:
    """As cuBLAS sees it: element (i, j) at i + j * leading."""
    assert leading >= rows, "cuBLAS refuses a leading dimension below the rows"
    flat = memory(address, element, leading * (columns - 1) + rows)
    step = flat.itemsize
    return np.lib.stride_tricks.as_strided(flat, (rows, columns), (step, leading * step))


def multiply(a, b, alpha: float, beta: float, c, d, accumulate: str, finish=lambda sums: sums, scale=1) -> None:
    """D = finish(alpha scale a b + beta c), in float64 (integers exactly), rounded once. c is read if beta is not 0."""
    assert alpha == 1
    assert beta in (0, 1)
    wide = np.int64 if accumulate == "int32" else np.float64
    sums = scale * (a.astype(wide) @ b.astype(wide))
    if beta:
        sums = sums + c.astype(wide)
    d[:] = finish(sums).astype(d.dtype)


class Function:
    """What ctypes makes of a symbol: it converts by `argtypes`, and here the implementation gets plain numbers."""

    def __init__(self, name: str, implementation, calls: list):
        self.name, self._implementation, self._calls = name, implementation, calls
        self.argtypes, self.restype = None, None

    def __call__(self, *arguments):
        assert len(arguments) == len(self.argtypes), f"{self.name} takes {len(self.argtypes)} arguments"
        plain = []
        for value, kind in zip(arguments, self.argtypes, strict=True):
            if hasattr(kind, "contents") or isinstance(value, ctypes.Array):  # by reference
                kind.from_param(value)
                plain.append(value)
            else:
                converted = value if isinstance(value, kind) else kind(value)
                plain.append(converted.value or 0)
        self._calls.append((self.name, *plain))
        return self._implementation(*plain)


class FakeLibrary:
    """Both libraries in one: every call recorded, products computed, statuses failed on demand."""

    def __init__(self, version: int = 130100, lt_version: int = 130100, offered: int = 5):
        self.calls: list[tuple] = []
        self.version, self.lt_version, self.offered = version, lt_version, offered
        self.failing: dict[str, int] = {}
        self.things: dict[int, dict] = {}
        self._handles = itertools.count(0x1000, 0x10)
        self._functions: dict[str, Function] = {}

    def __getattr__(self, name: str) -> Function:
        if not name.startswith("cublas"):
            raise AttributeError(name)
        if name not in self._functions:
            implementation = getattr(type(self), f"do_{name}", None)
            if implementation is None:
                raise AttributeError(name)

            def run(*arguments):
                return self.failing.get(name) or implementation(self, *arguments)

            self._functions[name] = Function(name, run, self.calls)
        return self._functions[name]

    def names(self) -> list[str]:
        return [call[0] for call in self.calls]

    def last(self, name: str) -> tuple:
        return [call for call in self.calls if call[0] == name][-1][1:]

    def make(self, reference, **facts) -> int:
        handle = next(self._handles)
        self.things[handle] = {"attributes": {}, **facts}
        reference._obj.value = handle
        return 0

    def set_attribute(self, thing: int, attribute: int, address: int, size: int) -> int:
        self.things[thing]["attributes"][attribute] = ctypes.string_at(address, size)
        return 0

    def destroy(self, thing: int) -> int:
        del self.things[thing]
        return 0

    def do_cublasCreate_v2(self, reference):
        return self.make(reference)

    def do_cublasGetVersion_v2(self, handle, reference):
        reference._obj.value = self.version
        return 0

    def do_cublasSetStream_v2(self, handle, stream):
        self.things[handle].update(stream=stream, workspace=None)
        return 0

    def do_cublasSetWorkspace_v2(self, handle, address, size):
        self.things[handle].update(workspace=(address, size))
        return 0

    def do_cublasSetMathMode(self, handle, mode):
        self.things[handle].update(math=mode)
        return 0

    def do_cublasSgemm_v2(self, handle, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc):
        return self.do_cublasGemmEx(handle, ta, tb, m, n, k, alpha, a, 0, lda, b, 0, ldb, beta, c, 0, ldc, 68, -1)

    def do_cublasGemmEx(
        self, handle, ta, tb, m, n, k, alpha, a, a_type, lda, b, b_type, ldb, beta, c, c_type, ldc, compute, algo
    ):
        assert algo == -1
        assert self.things[handle]["workspace"], "SetStream took the workspace away"
        first = column_major_view(a, ELEMENT_OF[a_type], *((k, m) if ta else (m, k)), lda)
        second = column_major_view(b, ELEMENT_OF[b_type], *((n, k) if tb else (k, n)), ldb)
        out = column_major_view(c, ELEMENT_OF[c_type], m, n, ldc)
        scalar = SCALAR_OF[compute]
        one, zero = memory(alpha, scalar, 1)[0], memory(beta, scalar, 1)[0]
        assert zero == 0
        multiply(first.T if ta else first, second.T if tb else second, one, 0, None, out, scalar)
        return 0

    def do_cublasLtCreate(self, reference):
        return self.make(reference)

    def do_cublasLtGetVersion(self):
        return self.lt_version

    def do_cublasLtMatmulDescCreate(self, reference, compute, scale):
        return self.make(reference, compute=compute, scale=scale)

    def do_cublasLtMatrixLayoutCreate(self, reference, type_, rows, columns, leading):
        return self.make(reference, element=ELEMENT_OF[type_], shape=(rows, columns), leading=leading)

    def do_cublasLtMatmulPreferenceCreate(self, reference):
        return self.make(reference)

    do_cublasLtMatmulDescSetAttribute = set_attribute
    do_cublasLtMatmulPreferenceSetAttribute = set_attribute
    do_cublasLtMatmulDescDestroy = destroy
    do_cublasLtMatrixLayoutDestroy = destroy
    do_cublasLtMatmulPreferenceDestroy = destroy

    def do_cublasLtMatmulAlgoGetHeuristic(self, handle, description, a, b, c, d, preference, wanted, found, count):
        self.preference = self.things[preference]["attributes"]
        self.asked = {**self.things[description]["attributes"], "c": self.things[c], "d": self.things[d]}
        for index in range(min(wanted, self.offered)):
            found[index].algo[0] = 100 + index
            found[index].state = 15 if index == 1 else 0  # an answer that cannot be used
        count._obj.value = min(wanted, self.offered)
        return 0

    def do_cublasLtMatmul(
        self,
        handle,
        description,
        alpha,
        a,
        a_layout,
        b,
        b_layout,
        beta,
        c,
        c_layout,
        d,
        d_layout,
        algo,
        ws,
        size,
        stream,
    ):
        facts = self.things[description]
        ta, tb = (int.from_bytes(facts["attributes"][key], "little") for key in (3, 4))
        self.algorithm = ctypes.c_uint64.from_address(algo).value
        self.ran = {"workspace": (ws, size), "stream": stream, "attributes": facts["attributes"]}
        first, second, source, out = (
            column_major_view(address, layout["element"], *layout["shape"], layout["leading"])
            for address, layout in (
                (a, self.things[a_layout]),
                (b, self.things[b_layout]),
                (c, self.things[c_layout]),
                (d, self.things[d_layout]),
            )
        )
        scalar = SCALAR_OF[facts["compute"]]
        assert ELEMENT_OF[facts["scale"]] == scalar
        factors = (memory(pointer, scalar, 1)[0] for pointer in (alpha, beta))
        operands = (first.T if ta else first, second.T if tb else second)
        scale, finish = self.scale(facts["attributes"]), self.epilogue(facts["attributes"], out)
        multiply(*operands, *factors, source, out, scalar, finish, scale)
        return 0

    @staticmethod
    def scale(attributes: dict) -> float:
        """Of A and of B, where they have one."""
        addresses = [int.from_bytes(attributes[key], "little") for key in (17, 18) if key in attributes]
        return math.prod(float(memory(address, "fp32", 1)[0]) for address in addresses)

    @staticmethod
    def epilogue(attributes: dict, out: np.ndarray):
        """Of cublasLtEpilogue_t, 1, 4 and 6. A bias has D's type, and as many elements as D has rows."""
        number = int.from_bytes(attributes.get(7, b"\1"), "little")
        assert len(attributes.get(7, bytes(4))) == 4, "a uint32_t"
        if number == 1:
            return lambda sums: sums
        element = next(name for name, e in ELEMENTS.items() if e.numpy == out.dtype)
        bias = memory(int.from_bytes(attributes[8], "little"), element, out.shape[0]).astype(np.float64)
        finishes = {4: lambda sums: sums + bias[:, None], 6: lambda sums: np.maximum(sums + bias[:, None], 0)}
        return finishes[number]


class HostBuffer:
    """'Device' memory that the fake library can reach, aligned as the protocol says."""

    def __init__(self, nbytes: int):
        raw = np.full(nbytes + 256, 0xFF, np.uint8)
        start = -raw.ctypes.data % 256
        self.nbytes, self.bytes = nbytes, raw[start : start + nbytes]
        self.address = self.bytes.ctypes.data

    def upload(self, array, stream=None):
        data = np.ascontiguousarray(array).view(np.uint8).reshape(-1)
        self.bytes[: data.size] = data

    def download(self, dtype, shape, offset=0):
        return self.bytes[offset:].view(dtype)[: int(np.prod(shape))].reshape(shape).copy()

    def copy_from(self, other, stream=None):
        self.bytes[:] = other.bytes


class HostDevice:
    def allocate(self, nbytes: int) -> HostBuffer:
        # The workspace is not read: a fake address for it would do, but its size is checked.
        return HostBuffer(min(nbytes, 1 << 20))

    def bind(self, function, shape, arguments):
        return types.SimpleNamespace(launch=lambda _stream: function(shape, *arguments))


@dataclasses.dataclass(eq=False)
class HostStream:
    handle: int = 0x77


@pytest.fixture
def fake(monkeypatch):
    """A fake library in the place of the real one, with no session left over."""
    found = FakeLibrary()
    install(monkeypatch, found)
    return found


def install(monkeypatch, found: FakeLibrary) -> None:
    loaded = libraries.declare(found, found, "site-packages", "/x/libcublas.so.13", "/x/libcublasLt.so.13")
    monkeypatch.setattr(contenders, "load", lambda: loaded)
    monkeypatch.setattr(libraries, "load", lambda: loaded)
    monkeypatch.setattr(Session, "_sessions", {})


def finish(epilogue: str):
    """cu/support/finish.cu on host memory, compiled for an epilogue. A grid of too few blocks leaves columns out."""

    def run(shape, c, m, n, ldc, parameter):
        assert (m.dtype, n.dtype, ldc.dtype) == (np.int32,) * 3
        view = memory(c.address, "fp32", ldc * (m - 1) + n)
        view = np.lib.stride_tricks.as_strided(view, (m, n), (4 * ldc, 4))
        reached = view[:, : shape.grid[0] * 128]
        assert shape.block == (32, 8, 1)
        assert shape.grid[1] * 8 >= m
        x, addend = parameter["alpha"] * reached, 0.0
        if epilogue == "residual":
            residual = memory(int(parameter["residual"]), "fp32", parameter["ld_residual"] * (m - 1) + n)
            addend = np.lib.stride_tricks.as_strided(residual, (m, n), (4 * parameter["ld_residual"], 4))
        else:
            addend = memory(int(parameter["bias"]), "fp32", n)
        reached[:] = EPILOGUES[epilogue].value(x, addend[..., : reached.shape[1]])

    return run


@pytest.fixture
def finishing(monkeypatch):
    """finish.cu on the host. A list of (source, entry, defines): what was compiled."""
    compiled = []

    def support_function(device, source, entry, **defines):
        compiled.append((source, entry, defines))
        (define,) = defines
        return finish(define.removeprefix("EPILOGUE_").lower())

    monkeypatch.setattr(separate, "support_function", support_function)
    return compiled


def operands(problem, seed: int = 1) -> dict[str, HostBuffer]:
    """Small integers, exact in every type, in poisoned memory with the problem's leading dimensions."""
    inputs = problem.inputs(seed, "integer")
    buffers = {}
    for operand in problem.operands():
        buffers[operand.name] = HostBuffer(operand.nbytes)
        if not operand.output:
            view = buffers[operand.name].bytes.view(operand.dtype).reshape(operand.shape[0], operand.leading)
            view[:, : operand.shape[1]] = inputs[operand.name]
    return buffers


def output(problem, buffers) -> np.ndarray:
    c = problem.operands()[-1]
    return buffers["C"].download(c.dtype, (c.shape[0], c.leading))


def assert_product(problem, buffers, seed: int = 1) -> None:
    """C is epilogue(A B), scaled, exactly, and its padding still the poison."""
    inputs = problem.inputs(seed, "integer")
    a = inputs["A"] if problem.layout[0] == "N" else inputs["A"].T
    b = inputs["B"] if problem.layout[1] == "N" else inputs["B"].T
    exact = np.int64 if problem.type.exact else np.float64
    got = output(problem, buffers)
    wanted = a.astype(exact) @ b.astype(exact)
    if problem.type.scaled:
        wanted = math.prod(problem.scales) * wanted
    if problem.finish.addend:
        wanted = problem.finish.value(wanted, inputs[problem.finish.addend].astype(exact))
    wanted = wanted.astype(got.dtype)
    np.testing.assert_array_equal(got[:, : problem.n].astype(np.float64), wanted.astype(np.float64))
    assert (got[:, problem.n :].copy().view(np.uint8) == 0xFF).all()


def padded_gemm(type_, layout, m=5, n=3, k=7, epilogue="none") -> Gemm:
    """Rectangular, and padded to leading dimensions of which no two are equal."""
    return Gemm(m, n, k, type_, layout, lda=11, ldb=13, ldc=17, epilogue=epilogue)


# ---- the swap


def simulated(problem, g) -> np.ndarray:
    """What a column-major library makes of the arguments: C's memory, row by row as we read it."""
    flat = {o.name: np.full(o.nbytes // 8 * 8, np.nan) for o in problem.operands()}
    inputs = problem.inputs(1, "integer")
    for operand in problem.operands()[:2]:
        view = flat[operand.name][: operand.shape[0] * operand.leading].reshape(operand.shape[0], operand.leading)
        view[:, : operand.shape[1]] = inputs[operand.name]

    def element(name, leading, transposed, i, j):
        return flat[name][(j + i * leading) if transposed else (i + j * leading)]

    for i in range(g.m):
        for j in range(g.n):
            flat["C"][i + j * g.ldc] = sum(
                element(g.first, g.lda, g.transa, i, p) * element(g.second, g.ldb, g.transb, p, j) for p in range(g.k)
            )
    return flat["C"][: problem.m * problem.ldc].reshape(problem.m, problem.ldc)[:, : problem.n]


def right(problem, g) -> bool:
    inputs = problem.inputs(1, "integer")
    a = inputs["A"] if problem.layout[0] == "N" else inputs["A"].T
    b = inputs["B"] if problem.layout[1] == "N" else inputs["B"].T
    try:
        return bool(np.array_equal(simulated(problem, g), a.astype(np.float64) @ b.astype(np.float64)))
    except IndexError:
        return False


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(5, 3, 7), (2, 9, 4), (1, 6, 3), (6, 1, 2)])
def test_the_swap_computes_a_row_major_product(layout, shape):
    problem = padded_gemm(FP32, layout, *shape)
    assert right(problem, column_major(problem))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "pair", [("m", "n"), ("m", "k"), ("n", "k"), ("lda", "ldb"), ("lda", "ldc"), ("ldb", "ldc"), ("first", "second")]
)
def test_swapping_any_two_arguments_is_noticed(layout, pair):
    problem = padded_gemm(FP32, layout)
    g = column_major(problem)
    one, two = pair
    assert not right(problem, dataclasses.replace(g, **{one: getattr(g, two), two: getattr(g, one)}))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ["transa", "transb"])
def test_a_wrong_transposition_is_noticed(layout, name):
    problem = padded_gemm(FP32, layout)
    g = column_major(problem)
    assert not right(problem, dataclasses.replace(g, **{name: 1 - getattr(g, name)}))


# ---- GemmEx and Sgemm


@pytest.mark.usefixtures("fake")
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("type_", [FP32, TF32, FP16, FP16_ACC16, BF16, INT8], ids=lambda t: t.name)
def test_cublas_multiplies(type_, layout):
    problem = Gemm(8, 12, 4, type_, layout, 16, 20, 24) if type_ is INT8 else padded_gemm(type_, layout)
    buffers = operands(problem)
    GemmContender().bind(HostDevice(), problem, buffers).launch(HostStream())
    assert_product(problem, buffers)


@pytest.mark.parametrize(
    ("type_", "compute", "text"),
    [
        (TF32, 77, "gemmEx TF32"),
        (FP16, 68, "gemmEx 32F"),
        (FP16_ACC16, 64, "gemmEx 16F"),
        (BF16, 68, "gemmEx 32F"),
        (INT8, 72, "gemmEx 32I"),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_gemm_ex_is_told_the_compute_type(fake, type_, compute, text):
    problem = Gemm(4, 8, 4, type_)
    contender = GemmContender()
    contender.bind(HostDevice(), problem, operands(problem)).launch(HostStream())
    assert fake.last("cublasGemmEx")[17] == compute
    assert contender.config_text == text
    assert fake.last("cublasSetMathMode")[1] == 16  # partial sums stay fp32


def test_fp32_is_sgemm_in_default_math_and_pedantic_when_asked(fake):
    problem = Gemm(4, 8, 4, FP32)
    device, stream, buffers = HostDevice(), HostStream(), operands(problem)
    plain, pedantic = GemmContender(), GemmContender(pedantic=True)
    plain.bind(device, problem, buffers).launch(stream)
    assert fake.last("cublasSetMathMode")[1] == 16  # partial sums stay fp32
    pedantic.bind(device, problem, buffers).launch(stream)
    assert fake.last("cublasSetMathMode")[1] == 2 + 16
    assert (plain.config_text, pedantic.config_text) == ("sgemm default", "sgemm pedantic")
    assert fake.names().count("cublasSgemm_v2") == 2
    assert compute_name(FP32) == "32F"


def test_the_workspace_is_given_again_after_each_change_of_stream(fake):
    problem = Gemm(4, 8, 4, BF16)
    one, two = HostStream(1), HostStream(2)
    call = GemmContender().bind(HostDevice(), problem, operands(problem))
    for stream in (one, one, two, one):
        call.launch(stream)
    names = [name for name in fake.names() if "Stream" in name or "Workspace" in name or "GemmEx" in name]
    change = ["cublasSetStream_v2", "cublasSetWorkspace_v2", "cublasGemmEx"]
    assert names == [*change, "cublasGemmEx", *change, *change]
    assert [call[2] for call in fake.calls if call[0] == "cublasSetStream_v2"] == [1, 2, 1]
    assert fake.last("cublasSetWorkspace_v2")[2] == WORKSPACE_BYTES == 64 << 20


def test_one_handle_a_device(fake):
    problem = Gemm(4, 8, 4, FP32)
    here, there = HostDevice(), HostDevice()
    for device in (here, here, there):
        for contender in (GemmContender(), GemmContender(pedantic=True), LtContender()):
            contender.bind(device, problem, operands(problem))
    assert fake.names().count("cublasCreate_v2") == fake.names().count("cublasLtCreate") == 2


# ---- Lt


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("type_", [FP32, TF32, FP16, FP16_ACC16, BF16, INT8], ids=lambda t: t.name)
def test_lt_multiplies_with_each_algorithm(fake, type_, layout):
    problem = Gemm(8, 12, 4, type_, layout, 16, 20, 24) if type_ is INT8 else padded_gemm(type_, layout)
    buffers = operands(problem)
    for call in LtContender().candidates(HostDevice(), problem, buffers):
        buffers["C"].bytes[:] = 0xFF
        call.launch(HostStream(9))
        assert_product(problem, buffers)
    assert fake.ran["stream"] == 9
    assert fake.ran["workspace"][1] == WORKSPACE_BYTES


@pytest.mark.parametrize("fast", [True, False])
def test_fp8_has_scales_and_says_how_it_accumulates(fake, fast):
    problem = Gemm(5, 24, 32, FP8, "NT", 48, 64, 40, scales=(0.5, 4.0))
    buffers = operands(problem)
    contender = LtContender(fast_accumulation=fast)
    assert contender.name == ("library/cublaslt" if fast else "library/cublaslt_promoted")
    contender.bind(HostDevice(), problem, buffers).launch(HostStream())
    assert_product(problem, buffers)
    attributes = fake.ran["attributes"]
    found = [memory(int.from_bytes(attributes[scale], "little"), "fp32", 1)[0] for scale in (17, 18)]
    assert found == [4.0, 0.5]  # the library's first operand is B
    assert attributes[25] == bytes([fast])
    assert contender.config_text == "lt #1 of 4" + (", fast accumulation" if fast else "")


def test_only_fp8_has_scales(fake):
    problem = Gemm(4, 8, 4, BF16)
    LtContender().bind(HostDevice(), problem, operands(problem)).launch(HostStream())
    assert set(fake.ran["attributes"]) == {3, 4}


def test_candidates_are_the_usable_answers_and_choose_takes_one(fake):
    problem = Gemm(4, 8, 4, BF16)
    device, buffers, contender = HostDevice(), operands(problem), LtContender()
    calls = contender.candidates(device, problem, buffers)
    seen = []
    for call in calls:
        call.launch(HostStream())
        seen.append(fake.algorithm)
    assert seen == [100, 102, 103, 104]
    assert [call.description for call in calls] == [f"lt #{i} of 4" for i in (1, 2, 3, 4)]
    contender.choose(2)
    contender.bind(device, problem, buffers).launch(HostStream())
    assert fake.algorithm == 103
    assert contender.config_text == "lt #3 of 4"
    contender.choose(4)
    with pytest.raises(UsageError, match="no algorithm 4 for 4x8x4: 0 to 3"):
        contender.bind(device, problem, buffers)


def test_at_most_sixteen_heuristics_are_asked_for_once_a_plan(fake):
    fake.offered = 40
    problem = Gemm(4, 8, 4, BF16)
    contender, device = LtContender(), HostDevice()
    for _ in range(3):
        assert len(contender.candidates(device, problem, operands(problem))) == HEURISTICS - 1
    assert fake.last("cublasLtMatmulAlgoGetHeuristic")[7] == HEURISTICS == 16
    assert fake.names().count("cublasLtMatmulAlgoGetHeuristic") == 1


def test_the_preference_says_workspace_and_alignment(fake):
    problem = Gemm(4, 8, 4, BF16)
    buffers = operands(problem)
    LtContender().bind(HostDevice(), problem, buffers)
    numbers = {key: int.from_bytes(value, "little") for key, value in fake.preference.items()}
    assert numbers == {1: WORKSPACE_BYTES, 3: 1 + 2, 5: 256, 6: 256, 7: 256, 8: 256}
    buffers["A"].address += 16  # the library's second operand
    LtContender().bind(HostDevice(), problem, buffers)
    assert int.from_bytes(fake.preference[6], "little") == 16
    assert int.from_bytes(fake.preference[5], "little") == 256


def test_descriptors_live_as_long_as_a_call_and_are_destroyed_with_it(fake):
    problem = Gemm(4, 8, 4, BF16)
    device, buffers = HostDevice(), operands(problem)
    Session.of(device)
    before = len(fake.things)
    call = LtContender().bind(device, problem, buffers)  # the contender itself is gone
    gc.collect()
    assert len(fake.things) == before + 5
    call.launch(HostStream())
    assert_product(problem, buffers)
    del call
    gc.collect()
    assert len(fake.things) == before


# ---- epilogues

LT_FUSES = ("bias", "bias_relu", "residual")


@pytest.mark.usefixtures("fake")
@pytest.mark.parametrize("epilogue", ["bias", "bias_relu", "bias_silu", "residual"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("type_", [FP32, TF32], ids=lambda t: t.name)
@pytest.mark.parametrize("shape", [(5, 3, 7), (2, 9, 4)])
def test_a_separate_epilogue_finishes_what_cublas_stored(finishing, type_, layout, shape, epilogue):
    problem = padded_gemm(type_, layout, *shape, epilogue)
    buffers = operands(problem)
    contender = SeparateContender()
    contender.bind(HostDevice(), problem, buffers).launch(HostStream())
    if epilogue == "bias_silu":  # no integers: the reference has a bound
        got = output(problem, buffers)
        parts = list(problem.expected(problem.inputs(1, "integer"), "integer"))
        assert check_output(problem, parts, got).ok
    else:
        assert_product(problem, buffers)
    product = "sgemm default" if type_ is FP32 else "gemmEx TF32"
    assert contender.config_text == f"{product}, then {epilogue}"
    assert finishing == [("finish.cu", "finish", {f"EPILOGUE_{epilogue.upper()}": 1})]


@pytest.mark.usefixtures("fake")
def test_a_separate_epilogue_is_loaded_once_and_reaches_every_column(finishing):
    """Two sets of operands, each with its own bias; 300 columns are three tiles of a warp, the last one cut."""
    problem = Gemm(70, 300, 4, FP32, ldc=304, epilogue="bias_relu")
    contender, device = SeparateContender(), HostDevice()
    sets = {seed: operands(problem, seed) for seed in (1, 2)}
    calls = [contender.bind(device, problem, buffers) for buffers in sets.values()]
    for call in calls:
        call.launch(HostStream())
    for seed, buffers in sets.items():
        assert_product(problem, buffers, seed)
    assert len(finishing) == 1


FUSED = [
    *(padded_gemm(t, "NT", epilogue=e) for t in (TF32, FP16, FP16_ACC16, BF16) for e in LT_FUSES),
    *(padded_gemm(FP32, layout, epilogue=e) for layout in LAYOUTS for e in LT_FUSES),
    *(Gemm(5, 8, 16, FP8, "NT", 32, 48, 24, e) for e in LT_FUSES),
    *(Gemm(5, 8, 16, INT8, layout, 32, 48, 24, "residual") for layout in LAYOUTS),
]


@pytest.mark.parametrize("problem", FUSED, ids=lambda p: f"{p.type.name}-{p.layout}-{p.epilogue}")
def test_lt_fuses_epilogues(fake, problem):
    """The residual's rows are n apart, C's 24 or 17."""
    epilogue = problem.epilogue
    buffers = operands(problem)
    calls = LtContender().candidates(HostDevice(), problem, buffers)
    assert len(calls) == 4
    for call in calls:
        buffers["C"].bytes[:] = 0xFF
        call.launch(HostStream())
        assert_product(problem, buffers)
    # The heuristics were asked about what then ran.
    assert fake.asked["c"]["leading"] == (problem.n if epilogue == "residual" else problem.ldc)
    assert fake.asked["d"]["leading"] == problem.ldc
    assert {key: fake.asked.get(key) for key in (7, 8)} == {key: fake.ran["attributes"].get(key) for key in (7, 8)}


def test_calls_that_share_a_plan_have_biases_of_their_own(fake):
    problem = padded_gemm(BF16, "NT", epilogue="bias")
    device, contender = HostDevice(), LtContender()
    Session.of(device)
    before = len(fake.things)
    sets = {seed: operands(problem, seed) for seed in (1, 2, 3)}
    calls = [contender.bind(device, problem, buffers) for buffers in sets.values()]
    assert fake.names().count("cublasLtMatmulAlgoGetHeuristic") == 1
    for call in calls:
        call.launch(HostStream())
    for seed, buffers in sets.items():
        assert_product(problem, buffers, seed)
    contender.candidates(device, problem, sets[2])  # the same operands again make nothing new
    assert len(fake.things) == before + 5 + 2
    del contender, calls, call
    gc.collect()
    assert len(fake.things) == before


def test_a_bias_or_residual_aligned_less_has_a_plan_of_its_own(fake):
    device, contender = HostDevice(), LtContender()
    for epilogue, attribute in (("bias", None), ("residual", 7)):
        problem = Gemm(4, 8, 4, BF16, epilogue=epilogue)
        buffers = operands(problem)
        contender.bind(device, problem, buffers)
        asked = fake.names().count("cublasLtMatmulAlgoGetHeuristic")
        buffers[epilogue].address += 16
        contender.bind(device, problem, buffers)
        assert fake.names().count("cublasLtMatmulAlgoGetHeuristic") == asked + 1
        if attribute:
            assert int.from_bytes(fake.preference[attribute], "little") == 16
            assert int.from_bytes(fake.preference[8], "little") == 256


# ---- what is refused


@pytest.mark.parametrize(
    ("problem", "gemm_ex", "lt"),
    [
        (Gemm(16, 16, 16, FP8, "NT"), "has no fp8", None),
        (Gemm(16, 16, 16, FP8, "NN"), "has no fp8", "layout NT only, not NN"),
        (Gemm(17, 24, 32, FP8, "NT"), "has no fp8", None),
        (Gemm(16, 16, 24, FP8, "NT"), "has no fp8", "k is a multiple of 16, not k=24"),
        (Gemm(16, 20, 32, FP8, "NT"), "has no fp8", "n is a multiple of 8, not n=20"),
        (Gemm(16, 16, 32, FP8, "NT", lda=40), "has no fp8", "lda is a multiple of 16, not lda=40"),
        (Gemm(16, 16, 32, FP8, "NT", ldc=20), "has no fp8", "ldc is a multiple of 8, not ldc=20"),
        (Gemm(5, 8, 4, INT8), None, None),
        (Gemm(5, 8, 6, INT8), "k is a multiple of 4, not k=6", "k is a multiple of 4, not k=6"),
        (Gemm(5, 8, 4, INT8, "TN"), "lda is a multiple of 4, not lda=5", "lda is a multiple of 4, not lda=5"),
        (Gemm(4, 8, 4, INT8, ldb=9), "ldb is a multiple of 4", "ldb is a multiple of 4"),
        (Gemm(3, 5, 7, BF16), None, None),
        (Gemm(4, 4, 4, BF16, epilogue="bias"), "no epilogue, asked is 'bias'", None),
        (Gemm(4, 4, 4, FP32, epilogue="bias_silu"), "no epilogue, asked is 'bias_silu'", "no epilogue 'bias_silu'"),
        (Gemm(4, 4, 4, INT8, epilogue="bias_relu"), "asked is 'bias_relu'", "no epilogue 'bias_relu' for int8"),
        (Gemm(4, 4, 4, INT8, epilogue="residual"), "asked is 'residual'", None),
        (Gemm(2**31, 1, 1, FP32), "32-bit sizes: m=2147483648", "32-bit sizes: m=2147483648"),
    ],
    ids=lambda value: f"{value.type.name}-{value.layout}-{value.label}" if isinstance(value, Gemm) else "",
)
def test_refusals_say_the_value_and_the_rule(problem, gemm_ex, lt):
    for refusal, wanted in ((gemm_ex_refusal(problem), gemm_ex), (lt_refusal(problem), lt)):
        if wanted is None:
            assert refusal is None
        else:
            assert wanted in refusal
            assert "\n" not in refusal


@pytest.mark.parametrize(
    ("problem", "wanted"),
    [
        (Gemm(4, 4, 4, FP32, epilogue="bias_silu"), None),
        (Gemm(4, 4, 4, TF32, epilogue="residual"), None),
        (Gemm(4, 4, 4, BF16, epilogue="bias"), "separate 'bias' would read an already rounded C: only fp32"),
        (Gemm(16, 16, 16, FP8, "NT", epilogue="bias"), "has no fp8"),
        (Gemm(2**31, 1, 1, FP32, epilogue="bias"), "32-bit sizes"),
    ],
    ids=lambda value: f"{value.type.name}-{value.epilogue}" if isinstance(value, Gemm) else "",
)
def test_refusals_of_a_separate_epilogue(problem, wanted):
    refusal = separate_refusal(problem)
    assert refusal is None if wanted is None else wanted in refusal


@pytest.mark.usefixtures("fake")
def test_binding_what_is_refused_is_a_usage_error():
    with pytest.raises(UsageError, match="library/cublas does not take 4x4x4: a separate 'bias'"):
        SeparateContender().bind(HostDevice(), Gemm(4, 4, 4, BF16, epilogue="bias"), {})
    with pytest.raises(UsageError, match=r"library/cublas does not take 16x16x16: cublasGemmEx has no fp8"):
        GemmContender().bind(HostDevice(), Gemm(16, 16, 16, FP8, "NT"), {})
    with pytest.raises(UsageError, match=r"library/cublaslt does not take 16x16x16: .* NT only, not TN"):
        LtContender().bind(HostDevice(), Gemm(16, 16, 16, FP8, "TN"), {})


@pytest.mark.parametrize("status", [0, 15])
def test_no_algorithm_is_a_usage_error(fake, status):
    fake.offered, fake.failing["cublasLtMatmulAlgoGetHeuristic"] = 0, status
    problem = Gemm(4, 8, 4, BF16, "TT")
    with pytest.raises(UsageError, match="4x8x4: cuBLASLt has no bf16 TT algorithm"):
        LtContender().bind(HostDevice(), problem, operands(problem))


@pytest.mark.parametrize(
    ("function", "doing"),
    [
        ("cublasCreate_v2", "creating a cuBLAS handle"),
        ("cublasLtCreate", "creating a cuBLASLt handle"),
        ("cublasSetStream_v2", "setting the stream"),
        ("cublasSetWorkspace_v2", "setting the workspace"),
        ("cublasSetMathMode", "setting the math mode"),
        ("cublasGemmEx", "calling cublasGemmEx"),
        ("cublasLtMatmulDescSetAttribute", "setting attribute 3 of a cublasLtMatmulDesc"),
        ("cublasLtMatrixLayoutCreate", "creating a cublasLtMatrixLayout"),
        ("cublasLtMatmulAlgoGetHeuristic", "asking cuBLASLt's heuristics for 4x8x4"),
        ("cublasLtMatmul", "calling cublasLtMatmul"),
    ],
)
def test_a_failed_status_names_itself_and_the_call(fake, function, doing):
    fake.failing[function] = 13
    problem = Gemm(4, 8, 4, BF16)

    def run():
        for contender in (GemmContender(), LtContender()):
            contender.bind(HostDevice(), problem, operands(problem)).launch(HostStream())

    with pytest.raises(DeviceError) as caught:
        run()
    assert str(caught.value) == f"CUBLAS_STATUS_EXECUTION_FAILED while {doing}: {STATUS[13][1]}"
    assert (caught.value.name, caught.value.code) == ("CUBLAS_STATUS_EXECUTION_FAILED", 13)


def test_an_unknown_status_is_shown_as_a_number(fake):
    fake.failing["cublasCreate_v2"] = 99
    with pytest.raises(DeviceError, match="CUBLAS_STATUS_99 while creating"):
        Session.of(HostDevice())


# ---- finding the libraries


def pathfinder(monkeypatch, load) -> None:
    module = types.ModuleType("cuda.pathfinder")
    module.load_nvidia_dynamic_lib = load
    package = types.ModuleType("cuda")
    package.pathfinder = module
    monkeypatch.setitem(sys.modules, "cuda", package)
    monkeypatch.setitem(sys.modules, "cuda.pathfinder", module)


@pytest.fixture
def fresh():
    libraries.load.cache_clear()
    yield libraries.load
    libraries.load.cache_clear()


def test_lt_is_loaded_first(monkeypatch, fresh):
    order, found = [], FakeLibrary()

    def load(name):
        order.append(name)
        return types.SimpleNamespace(abs_path=f"/x/{name}", found_via="CUDA_PATH")

    pathfinder(monkeypatch, load)
    monkeypatch.setattr(ctypes, "CDLL", lambda _path: found)
    loaded = fresh()
    assert order == ["cublasLt", "cublas"]
    assert (loaded.found_via, loaded.cublas_path, loaded.lt_path) == ("CUDA_PATH", "/x/cublas", "/x/cublasLt")


def test_a_missing_library_is_one_line_with_the_command(monkeypatch, fresh):
    def load(name):
        raise RuntimeError(f'Failure finding "lib{name}.so": no such file\n  listdir("/somewhere")')

    pathfinder(monkeypatch, load)
    with pytest.raises(MissingError) as caught:
        fresh()
    text = str(caught.value)
    assert "cublasLt" in text
    assert "pip install nvidia-cublas " in text
    assert "nvidia-cublas-cu12" in text
    assert "\n" not in text


def test_missing_pathfinder_names_its_extra(monkeypatch, fresh):
    monkeypatch.setitem(sys.modules, "cuda", None)
    with pytest.raises(MissingError, match=r"cuda-pathfinder is missing: pip install cuda-pathfinder"):
        fresh()


def test_a_library_too_old_names_the_missing_function():
    with pytest.raises(MissingError, match="has no cublasCreate_v2, it is too old"):
        libraries.declare(types.SimpleNamespace(), types.SimpleNamespace(), "")


def test_every_function_has_types(fake):
    for name in (*libraries._CUBLAS, *libraries._LT, "cublasLtGetVersion"):
        function = getattr(fake, name)
        assert function.argtypes is not None
        assert function.restype in (ctypes.c_int, ctypes.c_size_t)


@pytest.mark.parametrize(("lt_version", "refused"), [(130100, False), (130104, False), (130000, True), (120805, True)])
def test_a_foreign_lt_is_noticed(monkeypatch, lt_version, refused):
    install(monkeypatch, FakeLibrary(130100, lt_version))
    if not refused:
        Session.of(HostDevice())
        return
    with pytest.raises(MissingError, match=r"cuBLAS 13\.1\.0 \(/x/libcublas.so.13\) found cuBLASLt .*LD_LIBRARY_PATH"):
        Session.of(HostDevice())


@pytest.mark.usefixtures("fake")
def test_describe_says_what_the_figures_depend_on(monkeypatch):
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "0")
    facts = libraries.describe(Session.of(HostDevice()).handle)
    assert facts["cublas"] == facts["cublaslt"] == "13.1.0"
    assert facts["cublas_found_via"] == "site-packages"
    assert (facts["cublas_path"], facts["cublaslt_path"]) == ("/x/libcublas.so.13", "/x/libcublasLt.so.13")
    assert facts["cublas_workspace_bytes"] == 64 << 20
    assert facts["cublas_math_mode"].startswith("default")
    assert facts["tf32_override"] == "0"
    assert libraries.describe()["cublas"] is None


def test_public_paths_name_no_user(monkeypatch):
    monkeypatch.setenv("HOME", "/home/ada")
    wheel = "/home/ada/venv/lib/python3.12/site-packages/nvidia/cu13/lib/libcublas.so.13"
    assert libraries.public_path(wheel) == "site-packages/nvidia/cu13/lib/libcublas.so.13"
    assert libraries.public_path("/home/ada/cuda/lib64/libcublas.so.13") == "~/cuda/lib64/libcublas.so.13"
    assert libraries.public_path("/usr/local/cuda/lib64/libcublas.so.13") == "/usr/local/cuda/lib64/libcublas.so.13"


def test_the_heuristic_lies_in_memory_as_the_header_has_it():
    fields = ("algo", "workspace", "state", "waves", "reserved")
    assert [getattr(libraries.Heuristic, name).offset for name in fields] == [0, 64, 72, 76, 80]
    assert ctypes.sizeof(libraries.Heuristic) == 96


# ---- which rows there are


@pytest.mark.parametrize(
    ("problem", "names"),
    [
        (Gemm(8, 8, 8, FP32), ["library/cublas", "library/cublas_pedantic", "library/cublaslt"]),
        (Gemm(8, 8, 8, TF32), ["library/cublas", "library/cublaslt"]),
        (Gemm(8, 8, 8, BF16, "TT"), ["library/cublas", "library/cublaslt"]),
        (Gemm(8, 8, 8, INT8), ["library/cublas", "library/cublaslt"]),
        (Gemm(8, 8, 6, INT8), []),
        (Gemm(16, 16, 16, FP8, "NT"), ["library/cublaslt", "library/cublaslt_promoted"]),
        (Gemm(16, 16, 16, FP8, "NN"), []),
        (Gemm(8, 8, 8, FP32, epilogue="bias"), ["library/cublas", "library/cublaslt"]),
        (Gemm(8, 8, 8, FP32, epilogue="residual"), ["library/cublas", "library/cublaslt"]),
        (Gemm(8, 8, 8, FP32, epilogue="bias_silu"), ["library/cublas"]),
        (Gemm(8, 8, 8, TF32, epilogue="bias_relu"), ["library/cublas", "library/cublaslt"]),
        (Gemm(8, 8, 8, BF16, epilogue="bias"), ["library/cublaslt"]),
        (Gemm(8, 8, 8, BF16, epilogue="bias_silu"), []),
        (Gemm(8, 8, 8, INT8, epilogue="residual"), ["library/cublaslt"]),
        (Gemm(8, 8, 8, INT8, epilogue="bias"), []),
        (Copy(8, 4, MOVE32), ["library/copy"]),
        (Copy(8, 4, MOVE32, 6, 5), []),
        (Transpose(8, 4, MOVE32), ["library/copy"]),
        (types.SimpleNamespace(operation="probe"), []),
    ],
    ids=lambda value: value.operation if hasattr(value, "operation") else "",
)
def test_the_library_rows_of_a_problem(problem, names):
    assert [contender.name for contender in library.contenders_of(problem)] == names
    assert library.usual(problem) == (names[0] if names else None)


def test_the_copy_moves_the_bytes_and_is_a_yardstick_for_a_transpose():
    problem = Copy(3, 5, MOVE32)
    buffers = operands(problem)
    library.contenders_of(problem)[0].bind(HostDevice(), problem, buffers).launch(HostStream())
    np.testing.assert_array_equal(output(problem, buffers), problem.inputs(1, "integer")["A"])
    assert library.computes(problem, "library/copy")
    assert not library.computes(Transpose(3, 5, MOVE32), "library/copy")
    assert library.computes(Gemm(8, 8, 8, FP32), "library/cublas")
