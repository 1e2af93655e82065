"""Whatever computes a problem and can be checked and timed: a kernel's variant, or a library call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np

from lowlevel import gpc
from lowlevel.catalog.entry import Launch, Sized, Variant
from lowlevel.catalog.repack import Copy, bytes_of_copies, copies
from lowlevel.device.protocol import Argument, Buffer, Device, LaunchShape, Module, Stream
from lowlevel.errors import UsageError
from lowlevel.hardware import Limits
from lowlevel.problems.base import Problem
from lowlevel.problems.gemm import Gemm
from lowlevel.toolchain.arch import capability


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
        problem = placed(problem, buffers)
        refusal = self.variant.refusal(problem)
        if refusal:
            raise UsageError(f"{self.name} does not take {problem.label}: {refusal}")
        values, packets = Values(device, self.variant, problem, buffers), []
        for step in self.variant.kernel.steps_for(problem):
            shape = for_code(launch_shape(step.launch, self.variant.config, problem, device.limits), self.module.arch)
            arguments = [values[name] for name in step.params]
            packets.append(device.bind(self.module.function(step.entry), shape, arguments))
        self.workspace_bytes = max(self.workspace_bytes, values.workspace_bytes)
        return Packets(packets, [values])


def for_code(shape: LaunchShape, arch: str) -> LaunchShape:
    """The launch of code compiled for `arch`. Before sm_90 code has no griddepcontrol.wait: it would not wait for the
    launch before, and so is not launched ahead of its end."""
    return replace(shape, programmatic=False) if capability(arch) < (9, 0) else shape


def placed(problem: Problem, buffers: Mapping[str, Buffer]) -> Problem:
    """The problem as its operands lie in memory: some may not begin at a multiple of 16 bytes."""
    unaligned = tuple(o.name for o in problem.operands() if buffers[o.name].address % 16)
    return replace(problem, unaligned=unaligned) if unaligned and isinstance(problem, Gemm) else problem


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


#: In place of a tensor map that cannot be: the kernel is passed it, and does not use it.
NO_MAP = np.zeros(1, "V128")[0]
#: In place of a buffer that a configuration does not read.
NOTHING = np.uint64(0)


class Values:
    """The binder: what each parameter name of a catalog entry stands for.

    Operand names (A, B, C, bias ...) are buffers; M, N, K, lda ... are the problem's scalars; `map_A` is the tensor
    map of operand A that the entry's boxes, or else the problem, describe under the variant's configuration, or of its
    copy where TMA cannot take it as it is; `workspace` is scratch memory, zeroed once; `epilogue` is the struct of
    what happens to a sum on its way out; `gpc_of_sm` has a byte for every SM, its GPC's number. Of a copy of A,
    `packed_A` is its memory, in the workspace before what `workspace` stands for, `ld_packed_A` its leading dimension,
    `rows_A` and `columns_A` its size.
    """

    def __init__(self, device: Device, variant: Variant, problem: Problem, buffers: Mapping[str, Buffer]):
        self._device, self._variant, self._problem, self._buffers = device, variant, problem, buffers
        self._copies = copies(problem) if variant.kernel.boxes else {}
        self._scalars = {**problem.scalars(), **_sizes_of_copies(self._copies)}
        launches = [step.launch for step in variant.kernel.steps_for(problem)]
        self.workspace_bytes = max(int(self._evaluate(launch.workspace)) for launch in launches)
        self._workspace: Buffer | None = None

    def __getitem__(self, name: str) -> Argument:
        if name in self._buffers:
            return self._buffers[name]
        if name in self._scalars:
            return self._scalars[name]
        if name.startswith("map_"):
            return self._map(name.removeprefix("map_"))
        if name.startswith("packed_"):
            return self._copy(name.removeprefix("packed_"))
        if name == "workspace":
            return self._own_scratch()
        if name == "gpc_of_sm":
            return gpc.table(self._device) if self._variant.config["GPC"] else NOTHING
        if name == "epilogue":
            return epilogue_parameter(self._problem, self._buffers)
        raise UsageError(
            f"{self._variant.kernel.label}: the binder knows no parameter '{name}'; it knows "
            f"{', '.join([*self._buffers, *self._scalars, 'map_<operand>', 'workspace', 'gpc_of_sm', 'epilogue'])}"
        )

    def _evaluate(self, value: object | Sized) -> object:
        return evaluate(value, self._variant.config, self._problem, self._device.limits)

    def _map(self, operand: str) -> Argument:
        if boxes := self._variant.kernel.boxes.get(operand):
            spec = self._evaluate(boxes)
        else:
            spec = self._problem.tensor_map(operand, self._variant.config)
        if spec is None:
            return NO_MAP
        return self._device.tensor_map(spec, self._copy(operand) if operand in self._copies else self._buffers[operand])

    def _copy(self, operand: str) -> Buffer:
        copy = self._copies[operand]
        return self._scratch().part(copy.offset, copy.operand.nbytes)

    def _own_scratch(self) -> Buffer:
        """What is left of the workspace behind the copies."""
        if not self._copies:
            return self._scratch()
        offset = self._evaluate(bytes_of_copies)
        return self._scratch().part(offset, self.workspace_bytes - offset)

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


def _sizes_of_copies(found: Mapping[str, Copy]) -> dict[str, np.int32]:
    sizes = {}
    for name, copy in found.items():
        rows, columns = copy.operand.shape
        for size, value in (("rows", rows), ("columns", columns), ("ld_packed", copy.operand.leading)):
            if value > np.iinfo(np.int32).max:
                raise UsageError(f"the copy of {name} for TMA has rows of {value} elements: more than an int holds")
            sizes[f"{size}_{name}"] = np.int32(value)
    return sizes


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
            programmatic=bool(get(launch.programmatic)),
        )
    except ZeroDivisionError:
        raise UsageError("its numbers make no launch: one that divides is 0") from None
    if min(shape.block) < 1:
        raise UsageError(f"its numbers make a block of {'x'.join(map(str, shape.block))} threads")
    return shape
