"""Child processes that run functions under a deadline: what crashes or hangs there costs one call.

Compilers have crashed the process they run in, and a wrong kernel can hang or lose the CUDA context, so neither
runs in the parent. Children are spawned, never forked: a CUDA context does not survive a fork.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
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
    importable ones.
    """

    def __init__(self, name: str, initializer: Callable | None = None, initargs: tuple = ()):
        self.name = name
        self._initializer, self._initargs = initializer, initargs
        self._process: multiprocessing.process.BaseProcess | None = None
        self._pipe: Connection | None = None

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

    def close(self) -> None:
        """Ends the child: politely between calls, by SIGKILL if it does not answer."""
        process, self._process = self._process, None
        if self._pipe is not None:
            self._pipe.close()
            self._pipe = None
        if process is not None:
            process.join(timeout=5)
            _kill(process)

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Starts the child if none is running, and waits for its initializer."""
        if self._process is not None and self._process.is_alive():
            return
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(
            target=_serve, args=(theirs, os.getpid(), self._initializer, self._initargs), name=self.name, daemon=True
        )
        self._process.start()
        theirs.close()
        self._receive(_START_DEADLINE_S)

    def _send(self, kind: str, function: Callable, args: tuple) -> None:
        self.start()
        try:
            self._pipe.send((kind, function, args))
        except (BrokenPipeError, ConnectionResetError):
            self._process = None
            self.start()
            self._pipe.send((kind, function, args))

    def _receive(self, deadline: float) -> tuple[str, Any]:
        try:
            if not self._pipe.poll(deadline):
                self._discard()
                raise WorkerHung(f"no answer in {deadline:.0f} s; killed")
            kind, value = self._pipe.recv()
        except (EOFError, ConnectionResetError):
            process = self._process
            process.join(timeout=5)
            self._discard()
            raise WorkerDied(death(process.exitcode)) from None
        except KeyboardInterrupt:
            self._discard()
            raise
        if kind == "error":
            raise value
        return kind, value

    def _discard(self) -> None:
        process, self._process = self._process, None
        self._pipe.close()
        self._pipe = None
        _kill(process)


class Pool:
    """`n` workers sharing a list of calls. A call that kills its worker costs that call alone."""

    def __init__(self, n: int, name: str = "pool"):
        self._workers = [Worker(f"{name}-{i}") for i in range(max(1, n))]

    def map(self, function: Callable, arguments: Sequence[tuple], deadline: float) -> Iterator[tuple[int, Any]]:
        """(index, result or exception) as they complete."""
        todo = list(enumerate(arguments))[::-1]
        running: dict[int, threading.Thread] = {}
        done: list[tuple[int, Any]] = []
        ready = threading.Condition()

        def serve(worker: Worker) -> None:
            while True:
                with ready:
                    if not todo:
                        return
                    index, args = todo.pop()
                try:
                    result = worker.call(function, *args, deadline=deadline)
                except LowlevelError as error:
                    result = error
                with ready:
                    done.append((index, result))
                    ready.notify()

        for i, worker in enumerate(self._workers[: len(arguments)]):
            running[i] = threading.Thread(target=serve, args=(worker,), daemon=True)
            running[i].start()
        try:
            for _ in range(len(arguments)):
                with ready:
                    while not done:
                        ready.wait(0.2)
                    item = done.pop(0)
                yield item
        finally:
            with ready:
                todo.clear()
            self.close()

    def close(self) -> None:
        for worker in self._workers:
            with contextlib.suppress(Exception):
                worker.close()


def death(exitcode: int | None) -> str:
    """`crashed (SIGSEGV)` or `exited with code 3`."""
    if exitcode is not None and exitcode < 0:
        with contextlib.suppress(ValueError):
            return f"crashed ({signal.Signals(-exitcode).name})"
    return f"exited with code {exitcode}"


def _kill(process: multiprocessing.process.BaseProcess) -> None:
    if process.is_alive():
        process.kill()
    process.join(timeout=10)


def _serve(pipe: Connection, parent: int, initializer: Callable | None, initargs: tuple) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's; it ends us by closing the pipe
    _die_with_parent(parent)
    os.dup2(2, 1)  # what a compiler or driver prints must not land in the parent's tables
    try:
        if initializer is not None:
            initializer(*initargs)
    except BaseException as error:
        _answer(pipe, "error", _portable(error))
        return
    _answer(pipe, "ready", None)
    while True:
        try:
            kind, function, args = pipe.recv()
        except (EOFError, ConnectionResetError, OSError):
            return
        try:
            if kind == "call":
                _answer(pipe, "result", function(*args))
            else:
                for item in function(*args):
                    _answer(pipe, "item", item)
                _answer(pipe, "end", None)
        except (BrokenPipeError, ConnectionResetError):
            return
        except BaseException as error:
            _answer(pipe, "error", _portable(error))


def _answer(pipe: Connection, kind: str, value: Any) -> None:
    pipe.send((kind, value))


def _portable(error: BaseException) -> LowlevelError:
    """The error itself when it is ours, else its one-line text and traceback."""
    if isinstance(error, LowlevelError):
        return error
    text = " ".join(str(error).split())
    return WorkerFailed(f"{type(error).__name__}: {text}", "".join(traceback.format_exception(error)))


def _die_with_parent(parent: int) -> None:
    """Linux sends SIGKILL when the parent is gone; elsewhere the closed pipe ends the child between calls."""
    with contextlib.suppress(Exception):
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        os._exit(1)
