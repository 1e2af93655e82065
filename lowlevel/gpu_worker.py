"""What runs in the child process that owns the GPU. Each function is called by name through `worker.Worker`.

The child keeps its device, modules and one problem's operands between calls, so that a shape's inputs and reference
are made once for all who compute it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from lowlevel import catalog
from lowlevel.catalog import library
from lowlevel.contender import Contender, KernelContender
from lowlevel.device.cuda.device import CudaDevice, open_device
from lowlevel.environment import environment
from lowlevel.hardware import Limits
from lowlevel.measure import Options, measure_group
from lowlevel.problems.base import Expected, Problem
from lowlevel.toolchain.binary import Binary
from lowlevel.verify import Checker, Verdict


@dataclass
class State:
    device: CudaDevice
    checker: Checker | None = None
    modules: dict[tuple[str, str], object] = field(default_factory=dict)


_state: State | None = None


def start(ordinal: int) -> None:
    """The child's initializer: opens the device."""
    global _state
    _state = State(open_device(ordinal))


def describe() -> tuple[Limits, dict]:
    """The device's limits, and the environment block of a results file."""
    return _state.device.limits, environment(_state.device)


def limits() -> Limits:
    return _state.device.limits


def checker(problem: Problem, seed: int, kind: str, parts: Sequence[Expected] | None = None) -> Checker:
    """The problem's buffers and reference; those of the last problem are freed first."""
    held = _state.checker
    if held is None or (held.problem, held.seed, held.kind) != (problem, seed, kind):
        release()
        _state.checker = Checker(_state.device, problem, seed, kind, parts)
    return _state.checker


def release() -> None:
    """Frees the last problem's buffers and reference."""
    held, _state.checker = _state.checker, None
    if held is not None:
        held.close()


def reference(problem: Problem, seed: int = 0, kind: str = "normal") -> list[Expected]:
    """The problem's reference, for other processes to `adopt`."""
    return checker(problem, seed, kind).parts


def adopt(problem: Problem, parts: Sequence[Expected], seed: int = 0, kind: str = "normal") -> None:
    """Takes a reference that another process made of the same inputs."""
    checker(problem, seed, kind, parts)


def contender(name: str, problem: Problem, binary: Binary | None) -> Contender:
    """A kernel's variant by its row name, or a library call by its own."""
    if binary is None:
        return next(c for c in library.contenders_of(problem) if c.name == name)
    key = (name, binary.arch)
    if key not in _state.modules:
        _state.modules[key] = _state.device.load(binary)
    return KernelContender(catalog.find(name), _state.modules[key])


def verify(
    name: str,
    problem: Problem,
    binary: Binary | None,
    seed: int = 0,
    kind: str = "normal",
    repeats: int = 1,
    choice: int | None = None,
) -> Verdict:
    """Launches a contender `repeats` times on poisoned output, and judges it. choice: a library's algorithm."""
    return checker(problem, seed, kind).run(contender(name, problem, binary), repeats, choice)


def measure(
    problem: Problem,
    members: Mapping[str, Binary | None],
    options: Options,
    checked: frozenset[str],
    seed: int = 0,
    choices: Mapping[str, int] | None = None,
) -> Iterator[tuple]:
    """Times the members together; yields what measure_group does."""
    contenders = [contender(name, problem, binary) for name, binary in members.items()]
    held = checker(problem, seed, "normal")
    yield from measure_group(_state.device, problem, contenders, options, held, checked, choices)
