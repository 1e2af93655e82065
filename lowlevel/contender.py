"""Whatever computes a problem and can be checked and timed: a kernel's variant, or a library call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from lowlevel.catalog.entry import Launch, Sized, Variant
from lowlevel.device.protocol import Argument, Buffer, Device, LaunchShape, Module, Stream
from lowlevel.errors import UsageError
from lowlevel.hardware import Limits
from lowlevel.problems.base import Problem


class Call(Protocol):
    """One call of a contender with its operands bound. Launching it enqueues everything that the call needs."""

    def launch(self, stream: Stream) -> None: ...


class Contender(Protocol):
    """`name` is a row's name. `bind` may allocate (workspace, plans); what it returns only launches."""

    name: str

    def bind(self, device: Device, problem: Problem, buffers: Mapping[str, Buffer]) -> Call: ...

    @property
    def workspace_bytes(self) -> int: ...


def free(call: Call) -> None:
    """Frees what a call of any contender owns, if it owns anything."""
    if hasattr(call, "free"):
        call.free()


class Packets:
    """The launches of one call, in order."""

    def __init__(self, packets: Sequence[Call], keep: Sequence[object] = ()):
        self.packets = tuple(packets)
        self._keep = tuple(keep)

    def launch(self, stream: Stream) -> None:
        for packet in self.packets:
            packet.launch(stream)

    def free(self) -> None:
        """Frees what was allocated to bind them."""
        for kept in self._keep:
            if isinstance(kept, Values):
                kept.free()


class KernelContender:
    """A variant of a catalog kernel, compiled and loaded."""

    def __init__(self, variant: Variant, module: Module):
        self.variant = variant
        self.module = module
        self.name = variant.name
        self.workspace_bytes = 0

    def bind(self, device: Device, problem: Problem, buffers: Mapping[str, Buffer]) -> Packets:
        """Raises UsageError when the kernel's rules, or the device's limits, refuse the problem."""
        refusal = self.variant.refusal(problem)
        if refusal:
            raise UsageError(f"{self.name} does not take {problem.label}: {refusal}")
        packets, keep = [], []
        for step in self.variant.kernel.steps:
            values = Values(device, self.variant, problem, buffers, step.launch)
            shape = launch_shape(step.launch, self.variant.config, problem, device.limits)
            arguments = [values[name] for name in step.params]
            packets.append(device.bind(self.module.function(step.entry), shape, arguments))
            keep.append(values)
            self.workspace_bytes = max(self.workspace_bytes, values.workspace_bytes)
        return Packets(packets, keep)


#: The struct Epilogue of cu/include/epilogue.cuh.
EPILOGUE_PARAMETER = np.dtype(
    [("alpha", np.float32), ("ld_residual", np.int32), ("bias", np.uint64), ("residual", np.uint64)]
)


def epilogue_parameter(problem: Problem, buffers: Mapping[str, Buffer]) -> np.void:
    """The struct's value for a problem: alpha = 1, and null where the problem has no such operand."""
    value = np.zeros(1, EPILOGUE_PARAMETER)
    value["alpha"] = 1.0
    for name in ("bias", "residual"):
        if name in buffers:
            value[name] = buffers[name].address
    value["ld_residual"] = problem.dimensions["n"]
    return value[0]


class Values:
    """The binder: what each parameter name of a catalog entry stands for.

    Operand names (A, B, C, bias ...) are buffers; M, N, K, lda ... are the problem's scalars; `map_A` is the
    tensor map that the problem describes for operand A under the variant's configuration; `workspace` is scratch
    memory, zeroed once; `epilogue` is the struct of what happens to a sum on its way out.
    """

    def __init__(
        self, device: Device, variant: Variant, problem: Problem, buffers: Mapping[str, Buffer], launch: Launch
    ):
        self._device, self._variant, self._problem, self._buffers = device, variant, problem, buffers
        self._scalars = problem.scalars()
        self.workspace_bytes = int(evaluate(launch.workspace, variant.config, problem, device.limits))
        self._workspace: Buffer | None = None

    def __getitem__(self, name: str) -> Argument:
        if name in self._buffers:
            return self._buffers[name]
        if name in self._scalars:
            return self._scalars[name]
        if name.startswith("map_"):
            operand = name.removeprefix("map_")
            spec = self._problem.tensor_map(operand, self._variant.config)
            return self._device.tensor_map(spec, self._buffers[operand])
        if name == "workspace":
            return self._scratch()
        if name == "epilogue":
            return epilogue_parameter(self._problem, self._buffers)
        raise UsageError(
            f"{self._variant.kernel.label}: the binder knows no parameter '{name}'; it knows "
            f"{', '.join([*self._buffers, *self._scalars, 'map_<operand>', 'workspace', 'epilogue'])}"
        )

    def _scratch(self) -> Buffer:
        if self._workspace is None:
            self._workspace = self._device.allocate(max(self.workspace_bytes, 16))
            self._workspace.fill(0)
            self._device.synchronize()  # the call may go to another stream than the zeros
        return self._workspace

    def free(self) -> None:
        """Frees the workspace."""
        if self._workspace is not None:
            self._workspace.free()
            self._workspace = None


def evaluate(value: object | Sized, config: Mapping[str, int], problem: Problem, limits: Limits) -> object:
    return value(config, problem, limits) if callable(value) else value


def launch_shape(launch: Launch, config: Mapping[str, int], problem: Problem, limits: Limits) -> LaunchShape:
    """The catalog's launch, evaluated for one problem. UsageError for numbers that leave a block without threads."""

    def get(value):
        return evaluate(value, config, problem, limits)

    try:
        block, cluster = get(launch.block), get(launch.cluster)
        shape = LaunchShape(
            grid=tuple(get(launch.grid)),
            block=(block, 1, 1) if isinstance(block, int | np.integer) else tuple(block),
            shared=int(get(launch.shared)),
            cluster=None if cluster is None else tuple(cluster),
            cooperative=launch.cooperative,
            programmatic=launch.programmatic,
        )
    except ZeroDivisionError:
        raise UsageError("its numbers make no launch: one that divides is 0") from None
    if min(shape.block) < 1:
        raise UsageError(f"its numbers make a block of {'x'.join(map(str, shape.block))} threads")
    return shape
