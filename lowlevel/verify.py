"""Whether a result is right, and if not, which element and who computed it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from lowlevel.catalog import library
from lowlevel.compare import Comparison, compare_on_device, same_on_device
from lowlevel.contender import Contender, KernelContender, free
from lowlevel.device.protocol import Buffer, Device
from lowlevel.errors import DeviceError, MissingError, UsageError
from lowlevel.problems.base import Expected, Operand, Problem, bits
from lowlevel.problems.blocks import absolute, each, row_blocks, to_float64

POISON = 0xFF  # NaN in every float type, -1 in every integer
#: Results that were judged right stay on the device to compare others with: this many at most, in this part of memory.
MOST_KEPT = 4
KEPT_PART = 1 / 16


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
    found = each(lambda piece: _check(*piece, output), [(p, rows) for p in parts for rows in row_blocks(p.value.shape)])
    worst = max(found, key=lambda piece: piece.ratio)
    squares = sum(piece.squares for piece in found)
    verdict = Verdict(True, worst.error, worst.bound)
    if wrong := sum(piece.wrong for piece in found):
        reason = f"{worst.text}; {wrong} of {sum(piece.size for piece in found)} wrong"
        return replace(verdict, ok=False, reason=reason)
    rms_error = math.sqrt(sum(piece.squared_errors for piece in found) / squares) if squares else 0.0
    return replace(verdict, rms_error=rms_error)


@dataclass(frozen=True)
class _Piece:
    """What some rows of a part came to. error, bound and text: of the element nearest to its bound, or furthest beyond;
    ratio: its error over its bound. The sums of squares are of errors and of the reference, where it has a bound."""

    size: int
    wrong: int
    ratio: float
    error: float
    bound: float
    text: str
    squared_errors: float = 0.0
    squares: float = 0.0


def _check(part: Expected, rows: slice, output: np.ndarray) -> _Piece:
    """Compares these of a part's rows."""
    value, selected = part.value[rows], _selected(part.rows, rows)
    got = bits(output)[selected][:, part.columns].view(output.dtype)
    if part.bound is None:
        wrong = bits(np.ascontiguousarray(got)) != bits(np.ascontiguousarray(value))
        # -0 and +0 are the same number
        wrong &= ~((got == 0) & (value == 0))
        if not wrong.any():
            return _Piece(value.size, 0, 0.0, 0.0, 0.0, "")
        ratio, bound, squares = np.where(wrong, np.inf, 0.0), np.zeros(value.shape), (0.0, 0.0)
        error = np.abs(got.astype(np.float64) - value.astype(np.float64))
    else:
        bound = part.bound[rows]
        error = np.abs(to_float64(got) - value)
        # The comparison is negated so that a NaN is wrong; a zero bound allows a zero error.
        wrong = ~(error <= bound)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(bound > 0, error / bound, np.where(error > 0, np.inf, 0.0))
        squares = float(np.sum(error**2)), float(np.sum(value**2))
    at = np.unravel_index(np.argmax(ratio), ratio.shape)
    text = (
        f"C[{_index(selected, at[0])}][{_index(part.columns, at[1])}] is {float(got[at]):.9g}, "
        f"expected {float(value[at]):.9g}, error {error[at]:.3g} > {bound[at]:.3g}"
    )
    worst = (float(ratio[at]), float(error[at]), float(bound[at]))
    return _Piece(value.size, int(wrong.sum()), *worst, text, *squares)


def _selected(selection: np.ndarray | slice, rows: slice) -> np.ndarray | slice:
    """These of the rows that a part selects."""
    if isinstance(selection, slice):
        start = selection.start or 0
        return slice(start + rows.start, start + rows.stop)
    return selection[rows]


def _index(selection, position: int) -> int:
    return int((selection.start or 0) + position if isinstance(selection, slice) else selection[position])


def _all_ones(dtype: np.dtype) -> int:
    return (1 << (8 * dtype.itemsize)) - 1


def _first_not_finite(output: np.ndarray) -> str:
    """`C[3][7] is nan; 128 of 4096 are not finite`, or nothing. Integers are always finite."""
    if output.dtype.kind in "iu":
        return ""
    infinite = bits(np.array(np.inf, output.dtype))  # all exponent bits, as a NaN has them too
    if not any(each(lambda rows: ((bits(output[rows]) & infinite) == infinite).any(), row_blocks(output.shape))):
        return ""
    bad = ~np.isfinite(output)
    row, column = np.argwhere(bad)[0]
    poison = bits(output)[row, column] == _all_ones(output.dtype)
    what = "was never written" if poison else f"is {float(output[row, column])}"
    return f"C[{row}][{column}] {what}; {int(bad.sum())} of {output.size} are not finite"


class Checker:
    """One problem's operands on the device, and its reference: checks any contender that computes it.

    `seed` and `kind` choose the inputs (problems.base). Above 2^34 FLOP the reference covers sampled rows and
    columns; the rest is compared on the device with the library's result, itself checked on those.
    A result that was judged right stays on the device: whose output has the same bytes, padding and all, is as right,
    and is not brought home. `parts`: the reference, where it was made before from the same inputs.
    """

    def __init__(
        self,
        device: Device,
        problem: Problem,
        seed: int = 0,
        kind: str = "normal",
        parts: Sequence[Expected] | None = None,
    ):
        self.device, self.problem, self.seed, self.kind = device, problem, seed, kind
        self.inputs = problem.inputs(seed, kind)
        self.parts = list(problem.expected(self.inputs, kind) if parts is None else parts)
        self._kept: list[tuple[Buffer, Verdict]] = []
        self._differ = device.allocate(16)
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

    def run(self, contender: Contender, repeats: int = 1, choice: int | None = None) -> Verdict:
        """Launches a contender on a poisoned output and checks all of it; with repeats, that the bits stay the same.
        choice: which of a library's algorithms, instead of the first that is right."""
        if hasattr(contender, "candidates"):
            contender.choose((self.right_candidates(contender) or [0])[0] if choice is None else choice)
        call = contender.bind(self.device, self.problem, self.buffers)
        try:
            self._launch(call)
            verdict = self.judge(self.buffers)
            if verdict.ok and repeats > 1:
                verdict = self._repeat(call, verdict, repeats - 1)
        finally:
            free(call)
        return located(verdict, contender)

    def _repeat(self, call, verdict: Verdict, times: int) -> Verdict:
        """The verdict, if the same launch gives the same bits each time."""
        output = self.buffers["C"]
        kept = next((kept for kept, _ in self._kept if self._same(output, kept)), None)
        first = self.download(self.buffers) if kept is None else None
        for _ in range(times):
            self._launch(call)
            if kept is None:
                same = np.array_equal(bits(self.download(self.buffers)), bits(first))
            else:
                same = self._same(output, kept)
            if not same:
                return replace(verdict, ok=False, reason="a second launch gave other bits")
        return verdict

    def _same(self, a: Buffer, b: Buffer) -> bool:
        return same_on_device(self.device, self.stream, a, b, self._differ)

    def right_candidates(self, contender) -> list[int]:
        """Which of a library's algorithms are right here: some leave the bound, as by rounding partial sums."""
        if contender.name not in self._right:
            calls = contender.candidates(self.device, self.problem, self.buffers)
            self._right[contender.name] = [i for i, call in enumerate(calls) if self._is_right(call)]
        return self._right[contender.name]

    def _is_right(self, call) -> bool:
        try:
            self._launch(call)
            return self.judge(self.buffers).ok
        except UsageError:  # offered, and then refused
            return False

    def _launch(self, call) -> None:
        self.buffers["C"].fill(POISON, self.stream)
        call.launch(self.stream)
        self.stream.synchronize()

    def download(self, buffers: Mapping[str, Buffer]) -> np.ndarray:
        output = self.output
        return buffers["C"].download(output.dtype, (output.shape[0], output.leading))

    def judge(self, buffers: Mapping[str, Buffer]) -> Verdict:
        """The verdict on the output in buffers["C"]."""
        for name, buffer in buffers.items():
            if text := buffer.guards_intact():
                return Verdict(False, reason=f"{name}: {text}")
        for kept, verdict in self._kept:
            if self._same(buffers["C"], kept):
                return verdict
        verdict = check_output(self.problem, self.parts, self.download(buffers))
        if verdict.ok and not self.problem.whole:
            verdict = self._compare_rest(verdict, buffers)
        if verdict.ok:
            self._keep(buffers["C"], verdict)
        return verdict

    def _keep(self, output: Buffer, verdict: Verdict) -> None:
        """A copy of a right result, in the place of the oldest where there are enough."""
        if output.nbytes > KEPT_PART * self.device.limits.memory_bytes / MOST_KEPT:
            return
        try:
            copy = self._kept.pop(0)[0] if len(self._kept) == MOST_KEPT else self.device.allocate(output.nbytes)
        except DeviceError:  # memory ran out: the next one is brought home
            return
        copy.copy_from(output)
        self.device.synchronize()
        self._kept.append((copy, verdict))

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
        unsigned = {operand.name: self.device.allocate(operand.nbytes) for operand in inputs}
        for operand in inputs:
            unsigned[operand.name].upload(padded(operand, absolute(self.inputs[operand.name])))
        _library_call(product).bind(self.device, product, {**unsigned, "C": size}).launch(self.stream)
        self.stream.synchronize()
        for buffer in unsigned.values():
            buffer.free()
        return Comparison(result, size)

    def close(self) -> None:
        """Frees the operands."""
        for buffer in (*self.buffers.values(), self._differ, *(kept for kept, _ in self._kept)):
            buffer.free()
        self._kept = []
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
