"""The `lowlevel` command."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import importlib
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from types import ModuleType

import lowlevel
from lowlevel.errors import LowlevelError, MissingError

#: The modules of `lowlevel.commands`, in the order of the help. They take a third of a second to import, so `parser`
#: does it, where Ctrl-C is told in a line.
_COMMANDS = (
    "list_",
    "build",
    "verify",
    "bench",
    "advise",
    "report",
    "compare",
    "profile",
    "show",
    "study",
    "exercise",
    "export",
    "doctor",
    "sanitize",
)

_ABOUT = """\
GPU kernels in CUDA C++, hand-written PTX and MLIR, and the harness that compiles, launches, checks and times them.

  lowlevel doctor                          what this machine can do, and what mends the rest
  lowlevel list 'gemm/*'                   the ladder
  lowlevel show ptx:gemm/02_tiled source   read a rung
  lowlevel build gemm --arch sm_80,sm_90   registers, shared memory, occupancy: no GPU needed
  lowlevel verify gemm/02_tiled 257x129x65 is it right?
  lowlevel bench 'gemm/*' 4096             how fast, beside cuBLAS
  lowlevel bench 'gemm/04*' --sweep BK=8,16  at other compile-time numbers
  lowlevel advise 4096 --dtype fp32        which tile should be fast, and why
  lowlevel report results.json             its roofline and ladder, drawn
  lowlevel compare before.json after.json  what became better, what worse
  lowlevel profile gemm/02_tiled 4096      why: Nsight Compute's counters, and what they mean
  lowlevel study fragment mma.m16n8k16     who holds which element; also banks, main loops, neighbours of the ladder
  lowlevel exercise 1 --start              learn by doing
  lowlevel bench my.cu --as gemm/02 1024   your own kernel, in the place of one of these
  lowlevel export gemm/02_tiled 4096       take it home: cubin, launch.json, callers in Python and C
"""


class CommandParser(argparse.ArgumentParser):
    """A command's parser that takes names and shapes on both sides of an option: `bench my.cu --as gemm/02 1024`."""

    _intermixing = False

    def add_subparsers(self, **words):
        self._intermixing = True  # where commands follow, argparse cannot mix; theirs do
        return super().add_subparsers(**words)

    def parse_known_args(self, args=None, namespace=None):
        if self._intermixing:  # it calls this function for options and positionals in turn
            return super().parse_known_args(args, namespace)
        self._intermixing = True
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._intermixing = False

    def _check_value(self, action, value):
        """Of a word that is no command, the nearest one instead of argparse's bare list."""
        if isinstance(action.choices, dict) and value not in action.choices:
            close = difflib.get_close_matches(value, action.choices, 1)
            near = f"did you mean {close[0]}?" if close else f"there are: {', '.join(action.choices)}"
            raise argparse.ArgumentError(None, f"no {action.metavar.lower()} '{value}'; {near}")
        super()._check_value(action, value)

    def without_command(self, _arguments: argparse.Namespace) -> int:
        """What `run` is where none of the commands that follow was named: the help, and the exit code of a mistake."""
        self.print_help(sys.stderr)
        return 2


def parser() -> CommandParser:
    top = CommandParser(
        "lowlevel",
        description=_ABOUT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="Exit codes: 0 all is well, 1 something is wrong or failed, 2 the request or the environment is; "
        "130 and 143 after Ctrl-C and SIGTERM: what was measured until then is printed and saved.",
    )
    top.add_argument("--version", action="version", version=f"lowlevel {lowlevel.__version__}")
    top.add_argument("--debug", action="store_true", help="show tracebacks of errors")
    top.set_defaults(run=top.without_command)
    commands = top.add_subparsers(dest="command", metavar="COMMAND", parser_class=CommandParser)
    for module in _modules():
        module.add(commands)
    return top


def _modules() -> list[ModuleType]:
    """The commands', or MissingError where this Python lacks a package."""
    try:
        with _held_back():
            return [importlib.import_module(f"lowlevel.commands.{command}") for command in _COMMANDS]
    except ModuleNotFoundError as missing:
        if not missing.name or missing.name.split(".")[0] == "lowlevel":
            raise
        raise MissingError(
            f"this Python has no {missing.name}: `make bench` sets up one that has everything; or install what "
            "pyproject.toml names: python -m pip install --editable '.[cu13]'"
        ) from None


@contextlib.contextmanager
def _held_back() -> Iterator[None]:
    """Ctrl-C and SIGTERM wait: an extension that imports numpy would make an ImportError of what they raise."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Terminated(KeyboardInterrupt):
    """SIGTERM came. It ends a command as Ctrl-C does: what was measured so far is printed and saved."""


@contextlib.contextmanager
def _terminated_like_interrupted() -> Iterator[None]:
    """Turns SIGTERM into Terminated, in this process alone: children are started afresh and keep what SIGTERM does.

    The first one only: `timeout` sends it to the process and then to its group, and the second must not end what the
    first began. Nothing is changed where SIGTERM is handled or ignored already, or outside the main thread.
    """
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return

    def end(_number: int, _frame: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise Terminated

    signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code; an error is one line on standard error."""
    arguments = argparse.Namespace(debug=False)
    try:
        with _terminated_like_interrupted():
            arguments = parser().parse_args(argv, arguments)
            code = arguments.run(arguments)
            print(end="", flush=True)  # what cannot be written is told here, not by Python at its exit
            return code
    except LowlevelError as error:
        if arguments.debug:
            traceback.print_exc()
        print(f"lowlevel: {error}", file=sys.stderr)
        return error.exit_code
    except Terminated as end:
        print(_ended("terminated", end), file=sys.stderr)
        return 143
    except KeyboardInterrupt as end:
        print(_ended("interrupted", end), file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader, `head` perhaps, has enough
        _drop_output()
        return 0
    except OSError as error:
        if arguments.debug:
            traceback.print_exc()
        _drop_output()
        where = "" if error.filename is None else f"{error.filename}: "
        print(f"lowlevel: {where}{error.strerror or error}", file=sys.stderr)
        return 2


def _ended(how: str, end: KeyboardInterrupt) -> str:
    """`lowlevel: interrupted`, and what is kept where whoever was interrupted knows it."""
    return f"lowlevel: {how}: {end}" if str(end) else f"lowlevel: {how}"


def _drop_output() -> None:
    """What is left to print has nowhere to go; Python would complain again when it flushes at exit."""
    with contextlib.suppress(OSError):  # it is no file, as under a test
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
