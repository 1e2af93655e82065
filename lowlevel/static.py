"""What can be known of a kernel without a GPU: resources, occupancy, and the instructions its file is about."""

from __future__ import annotations

import contextlib
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lowlevel import catalog, hardware
from lowlevel.catalog.entry import Variant
from lowlevel.contender import launch_shape
from lowlevel.errors import LowlevelError, MissingError, UsageError
from lowlevel.hardware import Limits
from lowlevel.problems.make import default_shape, make_problem
from lowlevel.toolchain import sass
from lowlevel.toolchain.arch import capability
from lowlevel.toolchain.binary import Binary
from lowlevel.toolchain.build import build_all


@dataclass(frozen=True)
class StaticRow:
    """One variant on one architecture. shared: static + dynamic bytes. missing: expected instructions not found.
    listed: the configuration is one of the entry's."""

    variant: str
    arch: str
    registers: int | None = None
    shared: int | None = None
    spills: int | None = None
    threads: int | None = None
    occupancy: float | None = None
    limited_by: str = ""
    gpu: str = ""
    instructions: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    advisories: tuple[str, ...] = ()
    error: str = ""
    skipped: str = ""
    listed: bool = True

    @property
    def ok(self) -> bool:
        """Numbers that are not the entry's own only have to compile: what they cost is what was asked."""
        return not (self.error or (self.listed and (self.missing or self.advisories or self.spills)))


def static_rows(
    variants: Sequence[Variant],
    archs: Sequence[str],
    gpu: str | None = None,
    jobs: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[StaticRow]:
    """Compiles every variant for every architecture that it can exist on. `gpu` names whose limits occupancy uses;
    by default a usual one of the architecture."""
    named = hardware.find(gpu) if gpu else None  # refused before anything is compiled
    rows: list[StaticRow | None] = []
    wanted = []
    for variant in variants:
        for arch in archs:
            try:
                wanted.append((len(rows), variant, catalog.request(variant, arch)))
                rows.append(None)
            except UsageError as error:
                rows.append(StaticRow(variant.shown, arch, skipped=str(error).split(": ", 1)[1]))
    built = build_all([request for _, _, request in wanted], jobs, progress)
    counted = counted_instructions([(variant, binary) for (_, variant, _), binary in zip(wanted, built, strict=True)])
    for (index, variant, request), binary, opcodes in zip(wanted, built, counted, strict=True):
        rows[index] = _row(variant, request.arch, binary, opcodes, named or hardware.typical(request.arch))
    return [row for row in rows if row is not None]


def _row(
    variant: Variant, arch: str, binary: Binary | LowlevelError, counted: Counter[str] | None, limits: Limits
) -> StaticRow:
    if isinstance(binary, LowlevelError):
        what = "skipped" if refuses_numbers(variant, binary) else "error"
        return StaticRow(variant.shown, arch, listed=variant.listed, **{what: str(binary)})
    entry = binary.entries[variant.kernel.entry]
    problem = make_problem(variant, default_shape(variant))
    try:
        shape = launch_shape(variant.kernel.launch, variant.config, problem, limits)
    except UsageError as error:
        return StaticRow(variant.shown, arch, listed=variant.listed, skipped=str(error))
    threads = shape.block[0] * shape.block[1] * shape.block[2]
    shared = entry.resources.shared + shape.shared
    held = hardware.occupancy(limits, threads, entry.resources.registers, shared)
    found, missing = expected_instructions(variant, arch, counted)
    return StaticRow(
        variant.shown,
        arch,
        entry.resources.registers,
        shared,
        sum(e.resources.spills for e in binary.entries.values()),
        threads,
        held.fraction,
        held.limited_by,
        limits.name,
        found,
        missing,
        unexplained(variant, binary),
        listed=variant.listed,
    )


def refuses_numbers(variant: Variant, error: LowlevelError) -> bool:
    """Whether a kernel did not compile because its own static_assert refuses numbers that its entry does not list."""
    return not variant.listed and "static assertion failed" in str(error)


def counted_instructions(built: Sequence[tuple[Variant, Binary | LowlevelError]]) -> list[Counter[str] | None]:
    """What `expected_instructions` needs of each binary. None where nothing is expected, as of numbers that are not
    the entry's, and without nvdisasm."""
    wanted: dict[str, dict[int, bytes]] = defaultdict(dict)
    for i, (variant, binary) in enumerate(built):
        if isinstance(binary, Binary) and variant.listed and _expected(variant, binary.arch):
            wanted[binary.arch][i] = binary.cubin
    counted: dict[int, Counter[str]] = {}
    for arch, cubins in wanted.items():
        with contextlib.suppress(MissingError):
            counted |= zip(cubins, sass.instructions_of_all(list(cubins.values()), arch), strict=True)
    return [counted.get(i) for i in range(len(built))]


def expected_instructions(
    variant: Variant, arch: str, counted: Counter[str] | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(those found, those not) of the instructions that the catalog says the file is about, on the newest listed
    architecture that is no newer than this one. Neither where they were not counted."""
    if counted is None:
        return (), ()
    wanted = _expected(variant, arch)
    found = tuple(opcode for opcode in wanted if sass.has(counted, opcode))
    return found, tuple(opcode for opcode in wanted if opcode not in found)


def _expected(variant: Variant, arch: str) -> tuple[str, ...]:
    listed = variant.kernel.expect.sass
    older = [a for a in listed if capability(a) <= capability(arch)]
    return listed[max(older, key=capability)] if older else ()


def unexplained(variant: Variant, binary: Binary) -> tuple[str, ...]:
    """The compiler's remarks that the catalog does not list as harmless."""
    allowed = variant.kernel.expect.allow
    return tuple(line for line in binary.advisories if not any(text in line for text in allowed))
