"""Rounds: all contenders of a problem in turn, in a new order each round, until the noise is small."""

from __future__ import annotations

import functools
import gc
import itertools
import operator
import random
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from lowlevel.contender import Contender, free
from lowlevel.device.protocol import Device
from lowlevel.measure.clock import ClockProbe
from lowlevel.measure.nvml import Monitor, reason_text
from lowlevel.measure.rotation import Rotation
from lowlevel.measure.statistics import iqr, median, relative_error
from lowlevel.measure.timers import Train, estimate_us, make_timer, units_for
from lowlevel.problems.base import Problem
from lowlevel.verify import POISON, Checker

#: From this much work on, a segment is a long one: a shorter one runs on the clock that the contender before it left.
LARGE_FLOPS = 2 * 4096**3
SHORT_MS, LONG_MS = 20.0, 50.0
_PAUSE_S = 0.04
#: So long work of that size runs before its first round, untimed: verifying has left the chip cool, and the clock needs
#: as long to come down to what power allows.
_WARM_S = 0.25
#: The two heats among a library's algorithms.
_HEAT_ROUNDS, _FINALISTS, _FINAL_ROUNDS = 3, 3, 7


@dataclass(frozen=True)
class Options:
    """budget_s: seconds of rounds for the group. noise: stop when every median is known this well, relatively. seed: of
    the orders in which the rounds run.

    cool: a pause before each segment, so that it starts on a cool chip; else sustained, with no pause.
    """

    timer: str = "auto"
    cool: bool = False
    budget_s: float = 10.0
    least_rounds: int = 8
    most_rounds: int = 60
    noise: float = 0.002
    seed: int = 0

    @property
    def regime(self) -> str:
        return "cool" if self.cool else "sustained"


@dataclass
class Measurement:
    """One contender's figures. times_us has a number a round, microseconds a call; rounds: how many of these each
    process has, where there are several. choice: which of a library's algorithms was timed."""

    name: str
    timer: str = ""
    cache: str = ""
    times_us: list[float] = field(default_factory=list)
    clocks_mhz: list[float] = field(default_factory=list)
    powers_w: list[float] = field(default_factory=list)
    throttled: int = 0
    host_us: float | None = None
    workspace_bytes: int = 0
    config_text: str = ""
    error: str = ""
    choice: int | None = None
    rounds: tuple[int, ...] = ()

    @property
    def by_process(self) -> list[list[float]]:
        """Each process's times."""
        ends = list(itertools.accumulate(self.rounds or (len(self.times_us),)))
        return [self.times_us[start:end] for start, end in zip([0, *ends], ends, strict=False)]

    @property
    def median_us(self) -> float:
        """Of several processes, the median of their medians."""
        return median([median(times) for times in self.by_process])

    @property
    def iqr_us(self) -> float:
        return iqr(self.times_us)

    @property
    def clock_mhz(self) -> float | None:
        return median(self.clocks_mhz) if self.clocks_mhz else None

    @property
    def power_w(self) -> float | None:
        return median(self.powers_w) if self.powers_w else None

    @property
    def throttle_reasons(self) -> str:
        return reason_text(self.throttled)


def joined(measurements: Sequence[Measurement]) -> Measurement:
    """One contender's figures in several processes as one."""
    first = measurements[0]
    if len(measurements) == 1:
        return first
    errors = [f"process {i}: {m.error}" for i, m in enumerate(measurements, 1) if m.error]
    together = {name: list(itertools.chain(*(getattr(m, name) for m in measurements))) for name in _LISTS}
    return replace(
        first,
        **together,
        rounds=tuple(len(m.times_us) for m in measurements),
        cache=_said(m.cache for m in measurements),
        config_text=_said(m.config_text for m in measurements),
        throttled=functools.reduce(operator.or_, (m.throttled for m in measurements)),
        host_us=median([m.host_us for m in measurements]) if first.host_us is not None else None,
        error=errors[0] if errors else "",
    )


_LISTS = ("times_us", "clocks_mhz", "powers_w")


def _said(texts: Iterable[str]) -> str:
    """What all say, or each of what they say."""
    return " / ".join(dict.fromkeys(texts))


@dataclass
class _Lane:
    """A contender in a race: bound to every operand set, with its timer."""

    contender: Contender
    timer: Train
    units: int
    result: Measurement


def segment_ms(problem: Problem) -> float:
    large = problem.flops >= LARGE_FLOPS or problem.bytes >= 2**28
    return LONG_MS if large else SHORT_MS


def measure_group(
    device: Device,
    problem: Problem,
    contenders: Sequence[Contender],
    options: Options,
    checker: Checker,
    checked: Collection[str],
    choices: Mapping[str, int] | None = None,
) -> Iterator[tuple]:
    """Yields ('running', name) before a contender runs, ('round', done, of), after the rounds ('raced', seconds), and
    last ('result', Measurement) each.

    Outputs of those named in `checked` are checked again after timing, on every operand set; a Measurement with an
    `error` is wrong. choices: a library's algorithms that were chosen before, by the library's name.
    """
    rotation = Rotation(checker)
    probe = ClockProbe(device)
    lanes: list[_Lane] = []
    try:
        for contender in contenders:
            yield "running", contender.name
            lanes.append(_prepare(device, problem, contender, rotation, options, checker, choices or {}))
        if not options.cool and segment_ms(problem) > SHORT_MS:
            yield from _warm(lanes)
        began = time.perf_counter()
        with Monitor(getattr(device, "uuid", "")) as monitor:
            yield from _race(lanes, options, probe, monitor)
        yield "raced", time.perf_counter() - began
        for lane in lanes:
            yield "running", lane.contender.name
            lane.result.host_us = lane.timer.host_us()
            if lane.contender.name in checked:
                lane.result.error = _recheck(lane, rotation, checker)
        for lane in lanes:
            yield "result", lane.result
    finally:
        for lane in lanes:
            for call in lane.timer.calls:
                free(call)
        rotation.close()


def _prepare(
    device: Device,
    problem: Problem,
    contender: Contender,
    rotation: Rotation,
    options: Options,
    checker: Checker,
    choices: Mapping[str, int],
) -> _Lane:
    choice = choices.get(contender.name)
    if choice is None and hasattr(contender, "candidates") and (right := checker.right_candidates(contender)):
        choice = _best_candidate(device, problem, contender, rotation, right)
    if choice is not None:
        contender.choose(choice)
    calls = [contender.bind(device, problem, buffers) for buffers in rotation.sets]
    estimate = estimate_us(device, calls)
    timer = make_timer(device, calls, options.timer, estimate)
    units = units_for(timer, estimate, segment_ms(problem))
    result = Measurement(contender.name, timer.name, "flushed" if timer.name == "cold" else rotation.cache)
    result.workspace_bytes, result.choice = contender.workspace_bytes, choice
    result.config_text = getattr(contender, "config_text", "")
    return _Lane(contender, timer, units, result)


def _best_candidate(device: Device, problem: Problem, contender, rotation: Rotation, right: Sequence[int]) -> int:
    """The fastest of a library's algorithms that are right, in two heats: short segments of all, then longer ones of
    the three best. Its time here is not reported: the winner runs again as a contender like any other."""
    by_set = [contender.candidates(device, problem, buffers) for buffers in rotation.sets]
    timers = {}
    for index in right:
        calls = [calls[index] for calls in by_set]
        estimate = estimate_us(device, calls)
        timers[index] = (make_timer(device, calls, "auto", estimate), estimate)
    finalists = _heat(timers, list(timers), segment_ms(problem) / 4, _HEAT_ROUNDS)[:_FINALISTS]
    return _heat(timers, finalists, segment_ms(problem), _FINAL_ROUNDS)[0]


def _heat(timers: Mapping, indices: list[int], milliseconds: float, rounds: int) -> list[int]:
    """The indices, fastest first by the median of `rounds` segments in shuffled order."""
    times: dict[int, list[float]] = {index: [] for index in indices}
    order, shuffle = list(indices), random.Random(0).shuffle
    for _ in range(rounds):
        shuffle(order)
        for index in order:
            timer, estimate = timers[index]
            units = units_for(timer, estimate, milliseconds)
            times[index].append(timer.segment(units, units // 2))
    return sorted(times, key=lambda index: median(times[index]))


def _warm(lanes: list[_Lane]) -> Iterator[tuple]:
    """Segments of all in turn, untimed, for _WARM_S."""
    began = time.perf_counter()
    for lane in itertools.cycle(lanes):
        if time.perf_counter() - began >= _WARM_S:
            return
        yield "running", lane.contender.name
        lane.timer.segment(lane.units, 0)


def _race(lanes: list[_Lane], options: Options, probe: ClockProbe, monitor: Monitor) -> Iterator[tuple]:
    """The rounds. Garbage collection is off: a collection in a train of launches would be timed with it."""
    order, shuffle = list(lanes), random.Random(options.seed).shuffle
    began = time.perf_counter()
    collecting = gc.isenabled()
    gc.disable()
    try:
        for round_ in range(options.most_rounds):
            shuffle(order)
            for lane in order:
                yield "running", lane.contender.name
                _segment(lane, options, probe, monitor)
            yield "round", round_ + 1, options.most_rounds
            spent = time.perf_counter() - began
            if round_ + 1 >= options.least_rounds and _quiet(lanes, options.noise):
                return
            per_round = spent / (round_ + 1)
            if round_ + 1 >= 3 and spent + per_round > options.budget_s:
                return
    finally:
        if collecting:
            gc.enable()


def _segment(lane: _Lane, options: Options, probe: ClockProbe, monitor: Monitor) -> None:
    if options.cool:
        time.sleep(_PAUSE_S)
    began = time.perf_counter()
    lane.result.times_us.append(lane.timer.segment(lane.units, lane.units // 2))
    ended = time.perf_counter()
    lane.result.clocks_mhz.append(probe.measure_mhz(lane.timer.stream))
    for sample in monitor.between(began, ended):
        lane.result.powers_w.append(sample.power_w)
        lane.result.throttled |= sample.reasons


def _quiet(lanes: list[_Lane], noise: float) -> bool:
    return all(relative_error(lane.result.times_us) < noise for lane in lanes)


def _recheck(lane: _Lane, rotation: Rotation, checker: Checker) -> str:
    """Every operand set once more on poisoned outputs, each judged."""
    for buffers in rotation.sets:
        buffers["C"].fill(POISON, lane.timer.stream)
    for call in lane.timer.calls:
        call.launch(lane.timer.stream)
    lane.timer.stream.synchronize()
    for index, buffers in enumerate(rotation.sets):
        verdict = checker.judge(buffers)
        if not verdict.ok:
            return f"wrong after timing, operand set {index}: {verdict.reason}"
    return ""
