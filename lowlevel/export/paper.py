"""A device that launches nothing: it writes down what it is asked to launch.

A variant is bound to it by the same code that binds it to a GPU, so what is written down is what would be launched.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace

from lowlevel.device.cuda.launch import check_shape, pack
from lowlevel.device.cuda.memory import ALIGNMENT, Borrowed
from lowlevel.device.protocol import LaunchShape
from lowlevel.errors import UsageError
from lowlevel.hardware import Limits, occupancy
from lowlevel.tensormap import TensorMap, check_rules
from lowlevel.toolchain.binary import Binary, Entry

_MAP_BYTES = 128


class PaperBuffer(Borrowed):
    """Memory that is only spoken of. `operand` is its name in the problem, empty for a workspace, of which it may be
    the part that begins at byte `offset`."""

    def __init__(self, device: Paper, nbytes: int, operand: str = "", address: int = ALIGNMENT, offset: int = 0):
        super().__init__(device, address, nbytes)
        self.operand, self.offset = operand, offset

    def part(self, offset: int, nbytes: int) -> PaperBuffer:
        return PaperBuffer(self._device, nbytes, self.operand, self.address + offset, self.offset + offset)

    def fill(self, byte: int, stream=None) -> None:
        """A workspace is asked to be zeroed; the description says so."""


@dataclass(frozen=True)
class PaperMap:
    """A tensor map over an operand, or over a copy of one that begins at byte `offset` of the workspace."""

    spec: TensorMap
    operand: str
    offset: int

    def as_parameter(self):
        return (ctypes.c_uint8 * _MAP_BYTES)()


@dataclass(frozen=True)
class Written:
    """One launch: the kernel's entry, its shape, and its arguments in order."""

    entry: Entry
    shape: LaunchShape
    arguments: tuple[object, ...]


def address_of(index: int) -> int:
    """The address that the operand of this number, counted from 0, has on paper."""
    return ALIGNMENT * (index + 1)


class Paper:
    """Stands for a GPU with these limits on which `binary` is loaded; it is its own module. `launches` is what was
    bound, in order."""

    driver = None

    def __init__(self, binary: Binary, limits: Limits):
        self.limits, self.arch = limits, binary.arch
        self._entries = binary.entries
        self.launches: list[Written] = []
        self._allocated = 0

    def allocate(self, nbytes: int) -> PaperBuffer:
        """Memory behind what was allocated before: all of it is one workspace to whoever launches the kernel."""
        offset = self._allocated
        self._allocated += -(-nbytes // ALIGNMENT) * ALIGNMENT
        return PaperBuffer(self, nbytes, offset=offset)

    def synchronize(self) -> None:
        """Nothing is under way on paper."""

    def operands(self, problem) -> dict[str, PaperBuffer]:
        """A buffer for each operand. Their addresses differ, so that one inside a struct is known again."""
        return {
            o.name: PaperBuffer(self, o.nbytes, o.name, address_of(index)) for index, o in enumerate(problem.operands())
        }

    def tensor_map(self, spec: TensorMap, buffer: PaperBuffer) -> PaperMap:
        check_rules(spec, buffer.address)
        return PaperMap(spec, buffer.operand, buffer.offset)

    def function(self, entry: str) -> SimpleNamespace:
        """What the launch checks ask of a loaded kernel, as far as the compiler's log knows it."""
        if entry not in self._entries:
            raise UsageError(f"no kernel '{entry}'; the module has: {', '.join(self._entries) or 'none'}")
        found = self._entries[entry]
        return SimpleNamespace(
            name=entry,
            entry=found,
            registers=found.resources.registers,
            static_shared=found.resources.shared,
            max_threads=self.limits.threads_per_block,
            allow_shared=lambda dynamic: None,  # noqa: ARG005
        )

    def bind(self, function: SimpleNamespace, shape: LaunchShape, arguments: Sequence[object]) -> Written:
        threads = shape.block[0] * shape.block[1] * shape.block[2]
        shared = function.static_shared + shape.shared
        resident = occupancy(self.limits, threads, function.registers, shared).blocks_per_sm
        check_shape(function, shape, self.limits, lambda: resident)
        pack(function.name, function.entry.parameters, arguments)
        self.launches.append(Written(function.entry, shape, tuple(arguments)))
        return self.launches[-1]
