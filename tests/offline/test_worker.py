"""Child processes: answers, deadlines, deaths, and that none of it costs the parent more than one call."""

import os
import signal
import subprocess
import sys
import time

import pytest

from lowlevel.errors import CompileError, UsageError
from lowlevel.worker import Pool, Worker, WorkerDied, WorkerFailed, WorkerHung, death

PATIENCE_S = 60.0


def double(x):
    return 2 * x


def own_pid():
    return os.getpid()


def refuse():
    raise CompileError("k.cu(1): error: no", log="the whole log")


def stumble():
    return {}["missing\nkey"]


def unpicklable():
    return lambda: None


def crash(number):
    os.kill(os.getpid(), number)


def leave():
    os._exit(3)


def sleep(seconds):
    time.sleep(seconds)
    return "awake"


def count(n, pause=0.0):
    for i in range(n):
        time.sleep(pause)
        yield i


def count_then(n, what):
    yield from range(n)
    what()


def chatter():
    print("not for the tables", flush=True)
    os.write(1, b"nor this\n")


def interrupt_self():
    os.kill(os.getpid(), signal.SIGINT)
    return "still here"


def set_up(value):
    os.environ["SET_UP"] = value


def what_was_set_up():
    return os.environ.get("SET_UP")


def cannot_start():
    raise UsageError("no device 7; there is 1")


def crash_on_two(x):
    if x == 2:
        os.kill(os.getpid(), signal.SIGSEGV)
    if x == 3:
        time.sleep(PATIENCE_S)
    if x == 4:
        raise CompileError("no")
    return own_pid()


@pytest.fixture(scope="module")
def shared():
    with Worker("test") as worker:
        yield worker


def test_a_call_runs_in_one_other_process(shared):
    assert shared.call(double, 21, deadline=PATIENCE_S) == 42
    first = shared.call(own_pid, deadline=PATIENCE_S)
    assert first != os.getpid()
    assert shared.call(own_pid, deadline=PATIENCE_S) == first


def test_our_errors_come_back_as_they_were(shared):
    with pytest.raises(CompileError, match="error: no") as caught:
        shared.call(refuse, deadline=PATIENCE_S)
    assert caught.value.log == "the whole log"


def test_other_errors_are_one_line_with_the_traceback_aside(shared):
    with pytest.raises(WorkerFailed) as caught:
        shared.call(stumble, deadline=PATIENCE_S)
    assert str(caught.value).startswith("KeyError: ")
    assert "\n" not in str(caught.value)
    assert "in stumble" in caught.value.traceback


def test_a_result_that_cannot_travel_is_an_error(shared):
    with pytest.raises(WorkerFailed):
        shared.call(unpicklable, deadline=PATIENCE_S)
    assert shared.call(double, 1, deadline=PATIENCE_S) == 2


def test_a_stream_yields_in_order(shared):
    assert list(shared.stream(count, 4, deadline=PATIENCE_S)) == [0, 1, 2, 3]


def test_a_stream_keeps_what_came_before_an_error(shared):
    items = shared.stream(count_then, 2, refuse, deadline=PATIENCE_S)
    assert [next(items), next(items)] == [0, 1]
    with pytest.raises(CompileError):
        next(items)
    assert shared.call(double, 4, deadline=PATIENCE_S) == 8


def test_a_stream_left_early_does_not_answer_the_next_call(shared):
    for item in shared.stream(count, 1000, deadline=PATIENCE_S):
        if item == 2:
            break
    assert shared.call(double, 5, deadline=PATIENCE_S) == 10


def test_stdout_of_the_child_is_not_the_parents(capfd):
    with Worker("chatter") as worker:
        worker.call(chatter, deadline=PATIENCE_S)
    captured = capfd.readouterr()
    assert captured.out == ""
    assert "not for the tables" in captured.err
    assert "nor this" in captured.err


def test_ctrl_c_is_the_parents_affair(shared):
    assert shared.call(interrupt_self, deadline=PATIENCE_S) == "still here"


def test_ctrl_c_finds_a_starting_child_deaf():
    with Worker("starting") as worker:
        worker._spawn()
        os.kill(worker._process.pid, signal.SIGINT)
        assert worker._receive(PATIENCE_S) == ("ready", None)


@pytest.mark.parametrize(
    ("function", "arguments", "text"),
    [(crash, (signal.SIGSEGV,), "crashed (SIGSEGV)"), (leave, (), "exited with code 3")],
)
def test_a_death_says_how_and_the_next_call_has_a_fresh_child(shared, function, arguments, text):
    before = shared.call(own_pid, deadline=PATIENCE_S)
    with pytest.raises(WorkerDied) as caught:
        shared.call(function, *arguments, deadline=PATIENCE_S)
    assert str(caught.value) == text
    assert shared.call(own_pid, deadline=PATIENCE_S) != before


def test_a_child_that_died_between_calls_is_replaced(shared):
    os.kill(shared.call(own_pid, deadline=PATIENCE_S), signal.SIGKILL)
    shared._process.join(PATIENCE_S)
    assert shared.call(double, 3, deadline=PATIENCE_S) == 6


def test_silence_past_the_deadline_kills_the_child(shared):
    pid = shared.call(own_pid, deadline=PATIENCE_S)
    with pytest.raises(WorkerHung, match=r"0\.1 s"):
        shared.call(sleep, PATIENCE_S, deadline=0.1)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_streams_deadline_counts_from_the_last_item(shared):
    shared.start()
    assert len(list(shared.stream(count, 8, 0.5, deadline=3.0))) == 8
    with pytest.raises(WorkerHung):
        list(shared.stream(count_then, 3, leave_hanging, deadline=0.3))


def leave_hanging():
    time.sleep(PATIENCE_S)


def test_each_fresh_child_is_initialised():
    with Worker("initialised", set_up, ("once",)) as worker:
        assert worker.call(what_was_set_up, deadline=PATIENCE_S) == "once"
        with pytest.raises(WorkerDied):
            worker.call(crash, signal.SIGKILL, deadline=PATIENCE_S)
        assert worker.call(what_was_set_up, deadline=PATIENCE_S) == "once"


def test_an_initialiser_that_refuses_is_told_every_time():
    with Worker("refused", cannot_start) as worker:
        for _ in range(2):
            with pytest.raises(UsageError, match="no device 7"):
                worker.call(double, 1, deadline=PATIENCE_S)


def test_a_pool_answers_each_call_once_whatever_the_others_do():
    results = dict(Pool(2).map(crash_on_two, [(i,) for i in range(7)], deadline=2.0))
    assert sorted(results) == list(range(7))
    assert str(results[2]) == "crashed (SIGSEGV)"
    assert isinstance(results[3], WorkerHung)
    assert isinstance(results[4], CompileError)
    assert all(isinstance(results[i], int) for i in (0, 1, 5, 6))


def refuse_third(number):
    if number == 2:
        raise CompileError("no")
    return own_pid()


@pytest.mark.parametrize(("spoils", "children"), [(None, 1), (lambda error: str(error) == "no", 2)])
def test_a_pool_replaces_a_worker_that_an_error_spoils(spoils, children):
    results = dict(Pool(1, spoils=spoils).map(refuse_third, [(i,) for i in range(5)], deadline=PATIENCE_S))
    assert isinstance(results.pop(2), CompileError)
    assert len(set(results.values())) == children


def test_a_pool_uses_its_workers_and_no_more_than_there_are_calls():
    pids = {pid for _, pid in Pool(2).map(own_pid, [()] * 6, deadline=PATIENCE_S)}
    assert 1 <= len(pids) <= 2
    pool = Pool(8)
    assert [pid for _, pid in pool.map(own_pid, [()], deadline=PATIENCE_S)] != [os.getpid()]
    assert list(Pool(2).map(own_pid, [], deadline=PATIENCE_S)) == []


def test_a_pool_left_early_leaves_nobody_behind():
    pool = Pool(2)
    results = pool.map(sleep, [(0,), (PATIENCE_S,)], deadline=PATIENCE_S)
    next(results)
    processes = [worker._process for worker in pool._workers if worker.alive]
    results.close()
    assert processes
    assert not any(process.is_alive() for process in processes)


ORPHAN = """
import os, signal, sys
sys.path[:0] = {path!r}
from lowlevel.worker import Worker
from test_worker import own_pid, sleep

if __name__ == "__main__":
    worker = Worker("orphan")
    print(worker.call(own_pid, deadline=60), flush=True)
    worker._send("call", sleep, (60,))
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_child_ends_when_its_parent_is_killed(tmp_path):
    script = tmp_path / "orphan.py"
    script.write_text(ORPHAN.format(path=[os.path.dirname(__file__), *sys.path]))
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=PATIENCE_S)
    pid = int(done.stdout)
    give_up = time.monotonic() + 10
    while _runs(pid) and time.monotonic() < give_up:
        time.sleep(0.05)
    assert not _runs(pid)


def _runs(pid):
    """A killed process whose new parent has not reaped it yet is gone as far as we care."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_deaths_are_named():
    assert death(-signal.SIGABRT) == "crashed (SIGABRT)"
    assert death(1) == "exited with code 1"
    assert death(-200) == "exited with code -200"
