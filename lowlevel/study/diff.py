"""What one kernel has that another has not: in the source, in what it takes of an SM, in its instructions."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass

from lowlevel import catalog, paths, static
from lowlevel.catalog.entry import Kernel, Variant
from lowlevel.catalog.select import one_kernel
from lowlevel.errors import LowlevelError, UsageError
from lowlevel.static import StaticRow
from lowlevel.study.classes import mix
from lowlevel.study.twins import like
from lowlevel.toolchain import sass
from lowlevel.toolchain.build import build

#: What a comparison is made for unless another is asked for.
USUAL_ARCHS = ("sm_80", "sm_90a")


@dataclass(frozen=True)
class Compared:
    """One architecture's row of each kernel, and how many instructions of each class the whole kernel has."""

    arch: str
    rows: tuple[StaticRow, StaticRow]
    mixes: tuple[dict[str, int], dict[str, int]]


def pair(first: str, second: str) -> tuple[Variant, Variant]:
    """A variant of each name: in one language, of one type and layout where both have it, CUDA C++ before others. Two
    languages of one kernel are compared in the same configuration, as far as no bracket says otherwise. Where both
    names stand for the same kernel, as `gemm/14` and `gemm/14[NN]`, each is its own default.

    UsageError for a name that is none or stands for several kernels.
    """
    ours, theirs = one_kernel(first), one_kernel(second)
    if ours[0].kernel is theirs[0].kernel:
        return ours[0], theirs[0]

    def apart(a: Variant, b: Variant) -> tuple[bool, bool, bool]:
        return a.kernel.language != b.kernel.language, a.type.name != b.type.name, a.layout != b.layout

    pairs = [(a, b) for a in ours for b in theirs if a.kernel is not b.kernel]
    one, other = min(pairs, key=lambda both: apart(*both))
    if one.kernel.name == other.kernel.name:
        one = one if one.chosen_by == "named" else like(other, [one])
        other = other if other.chosen_by == "named" else like(one, [other])
    return one, other


def shared_archs(first: Variant, second: Variant) -> tuple[str, ...]:
    """Those of the usual architectures that both kernels can be compiled for: what is compared by default. UsageError
    where there is none."""
    found = tuple(arch for arch in USUAL_ARCHS if all(_exists(v, arch) for v in (first, second)))
    if not found:
        names = f"{first.kernel.label} ({', '.join(first.kernel.archs)})"
        names += f" and {second.kernel.label} ({', '.join(second.kernel.archs)})"
        raise UsageError(f"{names} share none of {', '.join(USUAL_ARCHS)}; name one with --arch")
    return found


def _exists(variant: Variant, arch: str) -> bool:
    try:
        catalog.request(variant, arch)
    except UsageError:
        return False
    return True


def sources(first: Kernel, second: Kernel, header: bool = False) -> list[str]:
    """A unified diff of two kernels' files, without the comment at the head of each unless `header`."""
    texts = [(paths.kernel_root() / kernel.path).read_text().splitlines() for kernel in (first, second)]
    if not header:
        texts = [without_header(text) for text in texts]
    return list(difflib.unified_diff(*texts, first.path, second.path, lineterm=""))


def without_header(lines: Sequence[str]) -> list[str]:
    """A source from the first line that is no comment of its head on. Line numbers then count from there."""
    first = next((i for i, line in enumerate(lines) if not line.startswith("//") and line.strip()), len(lines))
    return list(lines[first:])


def compared(first: Variant, second: Variant, archs: Sequence[str]) -> list[Compared]:
    """What the compiler says of both, on each architecture. Raises the first error of a kernel that does not compile,
    UsageError for an architecture that one cannot exist on, MissingError without nvdisasm."""
    found = []
    for arch in archs:
        for variant in (first, second):
            catalog.request(variant, arch)
        rows = static.static_rows([first, second], [arch])
        for row in rows:
            if row.error or row.skipped:
                raise LowlevelError(f"{row.variant}, {arch}: {row.error or row.skipped}")
        found.append(Compared(arch, (rows[0], rows[1]), (_mix(first, arch), _mix(second, arch))))
    return found


def _mix(variant: Variant, arch: str) -> dict[str, int]:
    listing = sass.sass(build(catalog.request(variant, arch)).cubin)
    code = sass.function_text(listing, variant.kernel.entry)
    return mix(sass.instructions(code).elements())


def table(found: Sequence[Compared]) -> list[dict]:
    """A row for each figure and architecture: what, arch, first, second, change. Instructions where they differ."""
    lines = []
    for one in found:
        for what, value in FIGURES.items():
            lines.append(_row(what, one.arch, *(value(row) for row in one.rows)))
        for name in dict.fromkeys([*one.mixes[0], *one.mixes[1]]):
            before, after = (m.get(name, 0) for m in one.mixes)
            if before != after:
                lines.append(_row(f"instructions: {name}", one.arch, before, after))
    return lines


def _row(what: str, arch: str, first: float, second: float) -> dict:
    change = second - first
    return {"what": what, "arch": arch, "first": first, "second": second, "change": f"{change:+g}" if change else ""}


#: What is compared besides instructions.
FIGURES = {
    "registers a thread": lambda row: row.registers,
    "shared bytes a block": lambda row: row.shared,
    "threads a block": lambda row: row.threads,
    "bytes spilled": lambda row: row.spills,
    "occupancy, %": lambda row: round(100 * row.occupancy),
}
