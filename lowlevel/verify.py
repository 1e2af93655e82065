"""Whether a result is right, and if not, which element and who computed it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from lowlevel.catalog import library
from lowlevel.compare import Comparison, SameBits, compare_on_device
from lowlevel.contender import Contender, KernelContender, free
from lowlevel.device.protocol import Buffer, Device
from lowlevel.errors import MissingError, UsageError
from lowlevel.problems.base import Expected, Operand, Problem, bits

#: So many launches are not brought home one by one.
MANY_REPEATS = 100
POISON = 0xFF  # NaN in every float type, -1 in every integer


@dataclass(frozen=True)
class Verdict:
    """max_error and error_bound are those of the element nearest to its bound, or beyond it. `checked` says which
    elements were compared; `reason` is one line, empty when all is well. rms_error: of those that the host compared,
    the root of the mean squared error over that of the mean square of C."""

    ok: bool
    max_error: float = 0.0
    error_bound: float = 0.0
    reason: str = ""
    checked: str = "every element"
    rms_error: float = 0.0


def check_output(problem: Problem, parts: list[Expected], output: np.ndarray) -> Verdict:
    """Compares a host copy of C (rows x leading dimension, poisoned before the launch) with the reference."""
    shape = problem.operands()[-1].shape
    if (bits(output[:, shape[1] :]) != _all_ones(output.dtype)).any():
        row, column = np.argwhere(bits(output[:, shape[1] :]) != _all_ones(output.dtype))[0]
        return Verdict(False, reason=f"padding written: C[{row}][{shape[1] + column}], past the row's end")
    output = output[:, : shape[1]]
    if bad := _first_not_finite(output):
        return Verdict(False, max_error=float("inf"), reason=bad)
    worst = Verdict(True)
    for part in parts:
        verdict = _check_part(part, output)
        if not verdict.ok:
            return verdict
        if _ratio(verdict) >= _ratio(worst):
            worst = verdict
    return replace(worst, rms_error=_rms_error(parts, output))


def _rms_error(parts: list[Expected], output: np.ndarray) -> float:
    errors = squares = 0.0
    for part in parts:
        if part.bound is not None:
            errors += float(np.sum((output[part.rows][:, part.columns].astype(np.float64) - part.value) ** 2))
            squares += float(np.sum(part.value**2))
    return math.sqrt(errors / squares) if squares else 0.0


def _check_part(part: Expected, output: np.ndarray) -> Verdict:
    got = output[part.rows][:, part.columns]
    if part.bound is None:
        wrong = bits(np.ascontiguousarray(got)) != bits(part.value)
        # -0 and +0 are the same number
        wrong &= ~((got == 0) & (part.value == 0))
        if not wrong.any():
            return Verdict(True)
        at = np.unravel_index(np.argmax(wrong), wrong.shape)
        error = abs(float(got[at]) - float(part.value[at]))
        return Verdict(False, error, 0.0, _wrong_text(part, at, got, error, 0.0, wrong))
    error = np.abs(got.astype(np.float64) - part.value)
    # The comparison is negated so that a NaN is wrong; a zero bound allows a zero error.
    wrong = ~(error <= part.bound)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(part.bound > 0, error / part.bound, np.where(error > 0, np.inf, 0.0))
    at = np.unravel_index(np.argmax(ratio), ratio.shape)
    verdict = Verdict(True, float(error[at]), float(part.bound[at]))
    if not wrong.any():
        return verdict
    text = _wrong_text(part, at, got, float(error[at]), float(part.bound[at]), wrong)
    return replace(verdict, ok=False, reason=text)


def _wrong_text(part: Expected, at, got, error: float, bound: float, wrong: np.ndarray) -> str:
    row, column = _index(part.rows, at[0]), _index(part.columns, at[1])
    return (
        f"C[{row}][{column}] is {float(got[at]):.9g}, expected {float(part.value[at]):.9g}, "
        f"error {error:.3g} > {bound:.3g}; {int(wrong.sum())} of {wrong.size} wrong"
    )


def _index(selection, position: int) -> int:
    return int((selection.start or 0) + position if isinstance(selection, slice) else selection[position])


def _ratio(verdict: Verdict) -> float:
    return verdict.max_error / verdict.error_bound if verdict.error_bound else verdict.max_error


def _all_ones(dtype: np.dtype) -> int:
    return (1 << (8 * dtype.itemsize)) - 1


def _first_not_finite(output: np.ndarray) -> str:
    """`C[3][7] is nan; 128 of 4096 are not finite`, or nothing. Integers are always finite."""
    if output.dtype.kind in "iu":
        return ""
    bad = ~np.isfinite(output)
    if not bad.any():
        return ""
    row, column = np.argwhere(bad)[0]
    poison = bits(output)[row, column] == _all_ones(output.dtype)
    what = "was never written" if poison else f"is {float(output[row, column])}"
    return f"C[{row}][{column}] {what}; {int(bad.sum())} of {output.size} are not finite"


class Checker:
    """One problem's operands on the device, and its reference: checks any contender that computes it.

    `seed` and `kind` choose the inputs (problems.base). Above 2^34 FLOP the reference covers sampled rows and
    columns; the rest is compared on the device with the library's result, itself checked on those.
    """

    def __init__(self, device: Device, problem: Problem, seed: int = 0, kind: str = "normal"):
        self.device, self.problem, self.seed, self.kind = device, problem, seed, kind
        self.inputs = problem.inputs(seed, kind)
        self.parts = list(problem.expected(self.inputs, kind))
        self.stream = device.stream()
        self.buffers = self.make_buffers()
        self._right: dict[str, list[int]] = {}
        self._library: Comparison | None = None
        self._library_note: str | None = None

    def make_buffers(self) -> dict[str, Buffer]:
        """A fresh set of operands: inputs in place with poisoned padding, output poisoned."""
        buffers = {o.name: self.device.allocate(o.nbytes) for o in self.problem.operands()}
        for operand in self.problem.operands():
            buffers[operand.name].fill(POISON)
        self.device.synchronize()
        for operand in self.problem.operands():
            if not operand.output:
                buffers[operand.name].upload(padded(operand, self.inputs[operand.name]))
        return buffers

    @property
    def output(self) -> Operand:
        return self.problem.operands()[-1]

    def run(self, contender: Contender, repeats: int = 1) -> Verdict:
        """Launches a contender on a poisoned output and checks all of it; with repeats, that the bits stay the same."""
        if hasattr(contender, "candidates"):
            contender.choose((self.right_candidates(contender) or [0])[0])
        call = contender.bind(self.device, self.problem, self.buffers)
        try:
            result = self._launch(call)
            verdict = self.judge(result, self.buffers)
            if verdict.ok and (other := self._other_bits(call, result, repeats - 1)):
                verdict = replace(verdict, ok=False, reason=other)
        finally:
            free(call)
        return located(verdict, contender)

    def _other_bits(self, call, result: np.ndarray, repeats: int) -> str:
        """What is said where one of `repeats` launches more gives other bits. Many are compared on the device."""
        if repeats < MANY_REPEATS:
            same = all(np.array_equal(bits(self._launch(call)), bits(result)) for _ in range(repeats))
            return "" if same else "a second launch gave other bits"
        counter = SameBits(self.device, self.buffers["C"], self.stream)
        try:
            for _ in range(repeats):
                self.buffers["C"].fill(POISON, self.stream)
                call.launch(self.stream)
                counter.count()
            different = counter.different()
        finally:
            counter.free()
        return f"{repeats} launches more gave other bits in {different} words" if different else ""

    def right_candidates(self, contender) -> list[int]:
        """Which of a library's algorithms are right here: some leave the bound, as by rounding partial sums."""
        if contender.name not in self._right:
            calls = contender.candidates(self.device, self.problem, self.buffers)
            self._right[contender.name] = [i for i, call in enumerate(calls) if self._is_right(call)]
        return self._right[contender.name]

    def _is_right(self, call) -> bool:
        try:
            return self.judge(self._launch(call), self.buffers).ok
        except UsageError:  # offered, and then refused
            return False

    def _launch(self, call) -> np.ndarray:
        self.buffers["C"].fill(POISON, self.stream)
        call.launch(self.stream)
        self.stream.synchronize()
        return self.download(self.buffers)

    def download(self, buffers: Mapping[str, Buffer]) -> np.ndarray:
        output = self.output
        return buffers["C"].download(output.dtype, (output.shape[0], output.leading))

    def judge(self, result: np.ndarray, buffers: Mapping[str, Buffer]) -> Verdict:
        """The verdict on an output that lies in buffers["C"] and, downloaded, in `result`."""
        for name, buffer in buffers.items():
            if text := buffer.guards_intact():
                return Verdict(False, reason=f"{name}: {text}")
        verdict = check_output(self.problem, self.parts, result)
        if verdict.ok and not self.problem.whole:
            verdict = self._compare_rest(verdict, buffers)
        return verdict

    def _compare_rest(self, verdict: Verdict, buffers: Mapping[str, Buffer]) -> Verdict:
        sampled = "64 rows, 64 columns and the edge tiles"
        comparison = self._library_result()
        if comparison is None:
            return replace(verdict, checked=f"{sampled} ({self._library_note})")
        text = compare_on_device(self.device, self.problem, buffers["C"], comparison, exact=self._exact)
        checked = f"{sampled}; the rest against the library"
        return replace(verdict, ok=not text, reason=text or "", checked=checked)

    @property
    def _exact(self) -> bool:
        """Whether the reference asks for the same bits."""
        return all(part.bound is None for part in self.parts)

    def _library_result(self) -> Comparison | None:
        """The library's result and |A||B|, made once; None, with a note why, where the library cannot make them."""
        if self._library is None and self._library_note is None:
            try:
                self._library = self._make_comparison()
            except MissingError as error:
                self._library_note = str(error)
        return self._library

    def _make_comparison(self) -> Comparison:
        """The result has the epilogue, if the problem has one; |A||B| is the product alone."""
        contender = _library_call(self.problem)
        result, size = (self.device.allocate(self.output.nbytes) for _ in range(2))
        result.fill(POISON)
        contender.bind(self.device, self.problem, {**self.buffers, "C": result}).launch(self.stream)
        self.stream.synchronize()
        verdict = check_output(self.problem, self.parts, self.download({"C": result}))
        if not verdict.ok:
            raise MissingError(f"{contender.name} is wrong here: {verdict.reason}")
        product = self.problem.product
        *inputs, _ = product.operands()
        absolute = {operand.name: self.device.allocate(operand.nbytes) for operand in inputs}
        for operand in inputs:
            absolute[operand.name].upload(padded(operand, np.abs(self.inputs[operand.name])))
        _library_call(product).bind(self.device, product, {**absolute, "C": size}).launch(self.stream)
        self.stream.synchronize()
        for buffer in absolute.values():
            buffer.free()
        return Comparison(result, size)

    def close(self) -> None:
        """Frees the operands."""
        for buffer in self.buffers.values():
            buffer.free()
        if self._library is not None:
            self._library.result.free()
            self._library.size.free()
            self._library = None


def _library_call(problem: Problem) -> Contender:
    """The usual library call. MissingError where there is none."""
    if not (contenders := library.contenders_of(problem)):
        raise MissingError("no library call computes it")
    return contenders[0]


def padded(operand: Operand, values: np.ndarray) -> np.ndarray:
    """The operand as it lies in memory: rows `leading` apart, poison between."""
    if operand.leading == operand.shape[1]:
        return values
    memory = np.full((operand.shape[0], operand.leading * operand.dtype.itemsize), POISON, np.uint8)
    memory = memory.view(operand.dtype)
    memory[:, : operand.shape[1]] = values
    return memory


def located(verdict: Verdict, contender: Contender) -> Verdict:
    """Adds to a wrong element's report the tile, warp and lane that computed it, where the catalog knows."""
    match = re.search(r"C\[(\d+)\]\[(\d+)\]", verdict.reason)
    if verdict.ok or match is None or not isinstance(contender, KernelContender):
        return verdict
    variant, row, column = contender.variant, int(match[1]), int(match[2])
    config = variant.config
    if "BM" not in config or "BN" not in config:
        return verdict
    where = f"tile_m {row // config['BM']}, tile_n {column // config['BN']}"
    if variant.kernel.owner:
        thread = variant.kernel.owner(config, row, column)
        where += f", warp {thread // 32}, lane {thread % 32}"
    return replace(verdict, reason=f"{verdict.reason} ({where})")
