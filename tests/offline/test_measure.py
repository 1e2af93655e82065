"""Timing on a device whose clock we make: rotation, interleaving, graphs, stopping, rechecking."""

import itertools

import numpy as np
import pytest
from fake_device import FakeContender, FakeDevice

from lowlevel import roofline
from lowlevel.dtypes import BF16, MOVE32
from lowlevel.errors import DeviceError
from lowlevel.hardware import GPUS
from lowlevel.measure import rounds, timers
from lowlevel.measure.nvml import reason_text
from lowlevel.measure.rotation import Rotation, sets_needed
from lowlevel.measure.statistics import iqr, median, paired_ratio, relative_error
from lowlevel.problems.gemm import Gemm
from lowlevel.problems.move import Copy
from lowlevel.verify import Checker

H200 = GPUS["H200"]


class NoTime:
    """Stands in for `time` in the rounds: none passes, so that no budget runs out however busy the machine is."""

    @staticmethod
    def perf_counter():
        return 0.0

    @staticmethod
    def sleep(_seconds):
        pass


class StillClock:
    """Stands in for the clock probe, which is a kernel."""

    def __init__(self, _device):
        pass

    def measure_mhz(self, _stream):
        return 1500.0


@pytest.fixture
def measured(monkeypatch):
    """Runs measure_group over fake contenders; returns (measurements by name, events)."""
    monkeypatch.setattr(rounds, "time", NoTime())
    monkeypatch.setattr(rounds, "ClockProbe", StillClock)
    monkeypatch.setattr(rounds, "segment_ms", lambda _problem: 0.5)

    def run(contenders, problem=None, device=None, checked=None, **options):
        device = device or FakeDevice()
        problem = problem or Copy(512, 1024, MOVE32)
        checker = Checker(device, problem)
        checked = {c.name for c in contenders} if checked is None else checked
        events = list(rounds.measure_group(device, problem, contenders, rounds.Options(**options), checker, checked))
        return {m.name: m for kind, m, *_ in events if kind == "result"}, events

    return run


def copy(arrays):
    return arrays["A"]


def test_enough_sets_that_the_others_exceed_twice_the_l2():
    for m in (256, 1024, 4096):
        problem = Copy(m, m, MOVE32)
        count = sets_needed(problem, H200)
        assert (count - 1) * problem.bytes > 2 * H200.l2_bytes or count == 256
    assert sets_needed(Copy(16384, 16384, MOVE32), H200) == 2


def test_fewer_sets_than_wanted_are_named():
    device = FakeDevice(memory_bytes=10 << 20)
    problem = Copy(512, 1024, MOVE32)  # 2 MiB an operand
    rotation = Rotation(Checker(device, problem))
    assert len(rotation.sets) == 2
    assert rotation.cache == f"rotated 2 of {sets_needed(problem, H200)}"


def test_median_time_and_rotation(measured):
    contender = FakeContender("a", copy, 25.0)
    result, _ = measured([contender])
    assert result["a"].median_us == pytest.approx(25.0)
    assert result["a"].timer == "graph"
    assert len(set(contender.launches)) == sets_needed(Copy(512, 1024, MOVE32), H200)


def test_every_round_has_each_contender_once_and_orders_differ(measured):
    contenders = [FakeContender(name, copy, 300.0) for name in "abcd"]
    _, events = measured(contenders)
    ends = [i for i, e in enumerate(events) if e[0] == "round"]
    starts = [ends[0] - 4, *[e + 1 for e in ends[:-1]]]
    orders = [tuple(e[1] for e in events[a:b]) for a, b in zip(starts, ends, strict=True)]
    assert len(orders) >= 8
    assert all(sorted(order) == list("abcd") for order in orders)
    assert len(set(orders)) > 3


def test_large_work_runs_untimed_before_its_first_round(measured, monkeypatch):
    """Until the clock has come down; not where each segment is to start on a cool chip."""
    before = {}
    for name, options in (("small", {}), ("large", {}), ("cool", {"cool": True})):
        monkeypatch.setattr(rounds, "SHORT_MS", 0.5 if name == "small" else 0.1)
        ticks = itertools.count()
        monkeypatch.setattr(rounds.time, "perf_counter", lambda ticks=ticks: 0.1 * next(ticks))
        result, events = measured([FakeContender(one, copy, 300.0) for one in "ab"], **options)
        first = next(i for i, event in enumerate(events) if event[0] == "round")
        before[name] = first - 4  # two were prepared, and two ran in the first round
        assert len(result["a"].times_us) == 8
    assert before == {"small": 0, "large": 2, "cool": 0}


def test_a_quiet_group_stops_early_and_a_noisy_one_goes_on(measured):
    quiet, _ = measured([FakeContender("a", copy, 300.0)])
    noise = np.random.default_rng(1)
    noisy, _ = measured([FakeContender("a", copy, lambda _: 300.0 * noise.uniform(0.5, 1.5))], most_rounds=20)
    assert len(quiet["a"].times_us) == 8
    assert len(noisy["a"].times_us) == 20


def test_the_budget_ends_a_noisy_group(measured, monkeypatch):
    ticks = itertools.count()
    monkeypatch.setattr(rounds.time, "perf_counter", lambda: float(next(ticks)))
    noise = np.random.default_rng(1)
    result, _ = measured([FakeContender("a", copy, lambda _: 300.0 * noise.uniform(0.5, 1.5))], budget_s=12.0)
    assert 3 <= len(result["a"].times_us) < 8


def test_a_graph_that_lost_launches_is_refused():
    device = FakeDevice()
    device.lose_nodes = 1
    checker = Checker(device, Copy(512, 1024, MOVE32))
    calls = [FakeContender("a", copy).bind(device, checker.problem, checker.buffers)] * 3
    with pytest.raises(DeviceError, match="nodes, not 1 a call"):
        timers.make_timer(device, calls, "graph", 10.0)


def test_a_forced_timer_is_used(measured):
    for name in ("events", "graph", "cold"):
        result, _ = measured([FakeContender("a", copy, 20.0)], timer=name)
        assert result["a"].timer == name
        assert result["a"].median_us == pytest.approx(20.0)
    assert result["a"].cache == "flushed"


def test_long_calls_are_not_put_in_graphs(measured):
    result, _ = measured([FakeContender("a", copy, 5000.0)])
    assert result["a"].timer == "events"


def test_what_calls_allocated_is_freed_after_the_race(measured):
    """A workspace for every operand set of every shape would fill the memory."""
    bound = []

    class Owning(FakeContender):
        def bind(self, device, problem, buffers):
            call = super().bind(device, problem, buffers)
            call.free = lambda: bound.remove(call)
            bound.append(call)
            return call

    measured([Owning("a", copy), FakeContender("b", copy)])
    assert bound == []


def test_outputs_are_checked_after_timing_on_every_set(measured):
    class Spoiled(FakeContender):
        """Right on the first operand set, wrong on the last."""

        def bind(self, device, problem, buffers):
            self.last = buffers["C"]
            return super().bind(device, problem, buffers)

    spoiled = Spoiled("bad", lambda arrays: np.zeros_like(arrays["A"]), 300.0)
    result, _ = measured([FakeContender("good", copy, 300.0), spoiled])
    assert result["good"].error == ""
    assert "wrong after timing, operand set 0" in result["bad"].error


def test_a_wrong_later_set_is_found(measured):
    seen = []

    def right_once(arrays):
        """Right wherever the first set's launch count stands, wrong on every third launch in the recheck."""
        seen.append(1)
        return arrays["A"] if len(seen) % 7 else arrays["A"] + 1

    result, _ = measured([FakeContender("flaky", right_once, 300.0)])
    assert "wrong after timing, operand set" in result["flaky"].error


def test_a_yardstick_is_not_rechecked(measured):
    result, _ = measured([FakeContender("other", lambda a: a["A"] * 0, 300.0)], checked=frozenset())
    assert result["other"].error == ""


class Library(FakeContender):
    """Offers algorithms of these times; those in `wrong` compute something else."""

    times, wrong = (50.0, 30.0, 40.0), ()
    choice = 0

    def candidates(self, device, problem, buffers):
        made = []
        for i, time in enumerate(self.times):
            function = (lambda arrays: arrays["A"] + 1) if i in self.wrong else copy
            made.append(FakeContender("c", function, time).bind(device, problem, buffers))
        return made

    def choose(self, index):
        self.choice, self.microseconds = index, self.times[index] + 1


def test_library_candidates_are_tried_and_the_fastest_measured_again(measured):
    library = Library("library", copy)
    result, _ = measured([library])
    assert library.choice == 1
    assert result["library"].median_us == pytest.approx(31.0)


def test_a_fast_algorithm_that_is_wrong_is_no_candidate(measured):
    library = Library("library", copy)
    library.wrong = (1,)
    result, _ = measured([library])
    assert library.choice == 2
    assert result["library"].error == ""


def test_the_last_heat_decides_between_algorithms_that_are_close():
    """The second is the fastest but for its first three segments, which look worse than the first's."""
    slow_starts = {0: itertools.repeat(10.0), 1: itertools.chain([10.2] * 3, itertools.repeat(9.0))}

    class Timer:
        step = 1

        def __init__(self, index):
            self.index = index

        def segment(self, units, lead):
            return next(slow_starts[self.index])

    timers_ = {i: (Timer(i), 10.0) for i in slow_starts}
    first = rounds._heat(timers_, [0, 1], 1.0, 3)
    assert first == [0, 1]
    assert rounds._heat(timers_, first, 1.0, 7) == [1, 0]


def test_ratio_and_interval_of_a_known_distribution():
    noise = np.random.default_rng(0)
    own = noise.normal(100, 1, 400)
    ratio, low, high = paired_ratio(own * 1.25, own)
    assert ratio == pytest.approx(1.25)
    ratio, low, high = paired_ratio(noise.normal(110, 2, 400), noise.normal(100, 2, 400))
    assert low < 1.10 < high
    assert high - low < 0.02


def test_statistics():
    assert median([3, 1, 2]) == 2
    assert iqr([1, 2, 3, 4, 5]) == 2
    assert relative_error([10.0] * 9) == 0
    assert relative_error([9.0, 10.0, 11.0] * 3) > 0.05


def test_rates_beyond_the_hardware_are_implausible():
    problem = Gemm(4096, 4096, 4096, BF16, "NT")
    at_peak_us = problem.flops / (132 * 4096 * 1980e6) * 1e6
    assert roofline.percent_of_peak(problem, H200, at_peak_us) == pytest.approx(100)
    assert not roofline.implausible(problem, H200, at_peak_us)
    assert "over the peak" in roofline.implausible(problem, H200, at_peak_us * 0.9)
    assert "below the timer's resolution" in roofline.implausible(problem, H200, 0.0)


def test_a_memory_rate_counts_only_beyond_the_l2():
    large, small = Copy(8192, 8192, MOVE32), Copy(1024, 1024, MOVE32)
    fast = lambda p: p.bytes / 9.0e12 * 1e6  # noqa: E731
    assert "over the memory's" in roofline.implausible(large, H200, fast(large))
    assert not roofline.implausible(small, H200, fast(small))


def test_throttle_reasons_are_words():
    assert reason_text(0x1) == ""  # idle
    assert reason_text(0x4 | 0x20) == "power cap, thermal (software)"
