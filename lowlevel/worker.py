"""Child processes that run functions under a deadline: what crashes or hangs there costs one call.

Compilers have crashed the process they run in, and a wrong kernel can hang or lose the CUDA context, so neither
runs in the parent. Children are spawned, never forked: a CUDA context does not survive a fork.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import multiprocessing
import os
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import connection, resource_tracker
from typing import Any

from lowlevel.errors import LowlevelError

_START_DEADLINE_S = 120.0


class WorkerHung(LowlevelError):
    """The call was silent past its deadline; the child was killed."""


class WorkerDied(LowlevelError):
    """The child ended in the middle of a call: a signal, or an exit."""


class WorkerFailed(LowlevelError):
    """The call raised something that is not a LowlevelError: a bug. `traceback` is the child's."""

    def __init__(self, message: str, trace: str = ""):
        super().__init__(message)
        self.traceback = trace


class Worker:
    """One child process, started at the first call and replaced after it died.

    `initializer(*initargs)` runs in each fresh child. Functions and arguments must be picklable, so functions are
    importable ones. The child lives no longer than the thread that started it.
    """

    def __init__(self, name: str, initializer: Callable | None = None, initargs: tuple = ()):
        self.name = name
        self._initializer, self._initargs = initializer, initargs
        self._process: multiprocessing.process.BaseProcess | None = None
        self._pipe: connection.Connection | None = None
        self._busy = False  # it has not said all that it has to say

    def call(self, function: Callable, *args: Any, deadline: float) -> Any:
        """The function's result; its LowlevelError is raised again here. `deadline` in seconds."""
        self._send("call", function, args)
        return self._receive(deadline)[1]

    def stream(self, function: Callable, *args: Any, deadline: float) -> Iterator[Any]:
        """The items of a generator function as they come; the deadline is the longest silence allowed."""
        self._send("stream", function, args)
        while True:
            kind, item = self._receive(deadline)
            if kind == "end":
                return
            yield item

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.is_alive()

    def start(self) -> None:
        """Starts the child if none is running, and waits for its initializer."""
        if self.alive:
            return
        self._spawn()
        try:
            self._receive(_START_DEADLINE_S)
        except LowlevelError:
            self.kill()  # an initializer that failed has left the child ending
            raise

    def close(self) -> None:
        """Ends the child: politely between calls, by SIGKILL in the middle of one."""
        if self._process is not None and not self._busy:
            self._pipe.close()
            self._process.join(timeout=5)
        self.kill()

    def kill(self) -> None:
        """Ends the child now, whatever it is doing. The next call starts another."""
        process, self._process = self._process, None
        if process is not None:
            self._pipe.close()
            process.kill()
            process.join(timeout=10)

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _spawn(self) -> None:
        """Starts a fresh child and does not wait for it."""
        self.kill()
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(
            target=_serve, args=(theirs, os.getpid(), self._initializer, self._initargs), name=self.name, daemon=True
        )
        with _interrupts_blocked():
            self._process.start()
        theirs.close()
        self._busy = True

    def _send(self, kind: str, function: Callable, args: tuple) -> None:
        if self._busy:  # a stream was left before its end: what is still to come must not answer this call
            self.kill()
        self.start()
        self._post((kind, function, args))

    def _post(self, message: tuple) -> None:
        self._busy = True
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # `_receive` finds out how it died
            self._pipe.send(message)

    def _receive(self, deadline: float, since: float | None = None) -> tuple[str, Any]:
        """The child's next message, `deadline` seconds from `since` (now) at most. Raises what became of it instead."""
        wait = deadline if since is None else since + deadline - time.monotonic()
        try:
            if not self._pipe.poll(max(0.0, wait)):
                self.kill()
                raise WorkerHung(f"no answer in {deadline:g} s; killed")
            kind, value = self._pipe.recv()
        except (EOFError, ConnectionResetError):
            process = self._process
            process.join(timeout=5)
            self.kill()
            raise WorkerDied(death(process.exitcode)) from None
        except KeyboardInterrupt:
            self.kill()
            raise
        self._busy = kind == "item"
        if kind == "error":
            raise value
        return kind, value


class Pool:
    """`n` workers sharing a list of calls. A call that kills its worker costs that call alone.

    spoils: whether a call's error leaves its worker unfit for others, as a lost CUDA context does: it is replaced.
    """

    def __init__(self, n: int, name: str = "pool", spoils: Callable[[LowlevelError], bool] | None = None):
        self._workers = [Worker(f"{name}-{i}") for i in range(max(1, n))]
        self._spoils = spoils

    def map(self, function: Callable, arguments: Sequence[tuple], deadline: float) -> Iterator[tuple[int, Any]]:
        """(index, result or LowlevelError) as they complete. `deadline` is one call's, in seconds."""
        todo = collections.deque((i, ("call", function, args)) for i, args in enumerate(arguments))
        running: dict[Worker, _Call] = {}
        try:
            for worker in self._workers[: len(todo)]:
                running[worker] = _Call(worker, *todo.popleft(), deadline)
            while running:
                for worker in _ready(running):
                    call = running[worker]
                    if not call.advance():
                        continue
                    del running[worker]
                    if self._spoils and isinstance(call.outcome, LowlevelError) and self._spoils(call.outcome):
                        worker.kill()
                    if todo:
                        running[worker] = _Call(worker, *todo.popleft(), deadline)
                    yield call.index, call.outcome
        finally:
            self.close()

    def close(self) -> None:
        for worker in self._workers:
            worker.close()


class _Call:
    """One call of a pool. Its worker may still have to start; then the message goes when it is ready."""

    def __init__(self, worker: Worker, index: int, message: tuple, deadline: float):
        self.index, self.outcome = index, None
        self._worker, self._message, self._deadline = worker, message, deadline
        if worker.alive:
            self._send()
        else:
            worker._spawn()
            self.since, self.limit = time.monotonic(), _START_DEADLINE_S

    @property
    def until(self) -> float:
        return self.since + self.limit

    def advance(self) -> bool:
        """Takes what the worker says, or its silence past the limit. True when that ends the call."""
        try:
            kind, value = self._worker._receive(self.limit, self.since)
            if kind == "ready":
                self._send()
                return False
            self.outcome = value
        except LowlevelError as error:
            self.outcome = error
        return True

    def _send(self) -> None:
        self.since, self.limit = time.monotonic(), self._deadline
        self._worker._post(self._message)


def _ready(running: dict[Worker, _Call]) -> list[Worker]:
    """Waits for the first message or deadline; the workers that it concerns."""
    wait = min(call.until for call in running.values()) - time.monotonic()
    heard = connection.wait([worker._pipe for worker in running], max(0.0, wait))
    now = time.monotonic()
    return [worker for worker, call in running.items() if worker._pipe in heard or now >= call.until]


def death(exitcode: int | None) -> str:
    """`crashed (SIGSEGV)` or `exited with code 3`."""
    if exitcode is not None and exitcode < 0:
        with contextlib.suppress(ValueError):
            return f"crashed ({signal.Signals(-exitcode).name})"
    return f"exited with code {exitcode}"


@contextlib.contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """A child started here inherits the block from its first moment: Ctrl-C is the parent's, which ends the child."""
    resource_tracker.ensure_running()  # the first spawn starts it, and it lifts the block
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve(pipe: connection.Connection, parent: int, initializer: Callable | None, initargs: tuple) -> None:
    _die_with_parent(parent)
    os.dup2(2, 1)  # what a compiler or driver prints must not land in the parent's tables
    try:
        if initializer is not None:
            initializer(*initargs)
    except BaseException as error:
        pipe.send(("error", _portable(error)))
        return
    pipe.send(("ready", None))
    with contextlib.suppress(EOFError, ConnectionResetError, BrokenPipeError):  # the parent is gone, or done with us
        while True:
            _answer(pipe, *pipe.recv())


def _answer(pipe: connection.Connection, kind: str, function: Callable, args: tuple) -> None:
    try:
        if kind == "call":
            pipe.send(("result", function(*args)))
        else:
            for item in function(*args):
                pipe.send(("item", item))
            pipe.send(("end", None))
    except (BrokenPipeError, ConnectionResetError):
        raise
    except BaseException as error:
        pipe.send(("error", _portable(error)))


def _portable(error: BaseException) -> LowlevelError:
    """The error itself when it is ours, else its one-line text and traceback."""
    if isinstance(error, LowlevelError):
        return error
    text = " ".join(str(error).split())
    return WorkerFailed(f"{type(error).__name__}: {text}", "".join(traceback.format_exception(error)))


def _die_with_parent(parent: int) -> None:
    """Linux sends SIGKILL when the parent is gone; elsewhere the closed pipe ends the child between calls."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        os._exit(1)
