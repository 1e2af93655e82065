"""One main loop in three languages: CUDA C++, PTX and SASS."""

from __future__ import annotations

from dataclasses import dataclass

from lowlevel import catalog, paths
from lowlevel.catalog.entry import Variant
from lowlevel.catalog.select import one_kernel
from lowlevel.study import loops, source_loop
from lowlevel.study.classes import mix
from lowlevel.study.loops import Loop
from lowlevel.toolchain import sass
from lowlevel.toolchain.build import build


@dataclass(frozen=True)
class Column:
    """One language's loop, line by line; title says what it is and where it comes from."""

    title: str
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Side:
    """columns: the loops. mixes: what is compiled -> class of instruction -> how many a turn of its loop."""

    columns: tuple[Column, ...]
    mixes: dict[str, dict[str, int]]


def side(name: str, arch: str) -> Side:
    """The main loops of a kernel, by name or number. With a language, `ptx:gemm/02`, that one's SASS is shown and,
    for CUDA C++, the compiler's PTX; without, the SASS of CUDA C++ beside the hand-written PTX where there is one.

    Raises UsageError for a name that is none or several, MissingError without nvdisasm.
    """
    found = one_kernel(name)
    cuda = next((v for v in found if v.kernel.language == "cuda"), None)
    hand = next((v for v in found if v.kernel.language == "ptx"), None)
    if cuda and hand:
        cuda = like(hand, [v for v in found if v.kernel.language == "cuda"])
    elif hand:
        twins = [v for v in catalog.variants() if v.kernel.name == hand.kernel.name and v.kernel.language == "cuda"]
        cuda = like(hand, twins) if twins else None
    shown = hand if not any(v.kernel.language == "cuda" for v in found) else cuda
    compiled = {v.kernel.language: Compiled(v, arch) for v in (cuda, hand) if v}
    columns = []
    if cuda:
        columns.append(compiled["cuda"].source_column())
    columns.append((compiled["ptx"] if hand else compiled["cuda"]).ptx_column())
    columns.append(compiled[shown.kernel.language].sass_column())
    mixes = {c.variant.name: mix(i.opcode for i in c.loop.instructions) for c in compiled.values() if c.loop}
    return Side(tuple(columns), mixes)


def like(wanted: Variant, variants: list[Variant]) -> Variant:
    """Of a twin's variants the one of the same type and layout, in the same configuration if it has it."""
    near = [v for v in variants if (v.type.name, v.layout) == (wanted.type.name, wanted.layout)] or variants
    same = [c for c in near[0].kernel.configs if dict(c) == dict(wanted.config)]
    return near[0].with_config(**same[0]) if same else near[0]


class Compiled:
    """A variant's binary, and the main loop of its SASS."""

    def __init__(self, variant: Variant, arch: str):
        self.variant = variant
        self.path = paths.kernel_root() / variant.kernel.path
        self.binary = build(catalog.request(variant, arch))
        listing = sass.function_text(sass.sass(self.binary.cubin, lines=True), variant.kernel.entry)
        self.loop: Loop | None = loops.main_loop(loops.read_sass(listing, self.path.name))

    def source_column(self) -> Column:
        """The loop statement that the SASS loop comes from, with its line numbers."""
        source, title = self.path.read_text(), f"CUDA C++: {self.variant.kernel.path}"
        lines = [i.lines for i in self.loop.instructions] if self.loop else []
        if (found := source_loop.main_loop(source, lines)) is None:
            return Column(title, ("no loop",))
        numbered = list(enumerate(source.splitlines(), 1))[found[0] - 1 : found[1]]
        return Column(f"{title}, lines {found[0]} to {found[1]}", tuple(f"{n:4} {text}" for n, text in numbered))

    def ptx_column(self) -> Column:
        """The loop of the PTX: as it was written, comments and all, or as the compiler made it."""
        hand = self.variant.kernel.language == "ptx"
        title = f"PTX by hand: {self.variant.kernel.path}" if hand else "PTX of the compiler"
        text = self.binary.ptx
        code = loops.read_ptx(text if hand else of_entry(text, self.variant.kernel.entry))
        text = text if hand else of_entry(text, self.variant.kernel.entry)
        if (loop := loops.main_loop(code)) is None:
            return Column(title, ("no loop",))
        # a label stands on the line before its first instruction, and comments may follow it
        first = next(i for i in range(loop.instructions[0].at, -1, -1) if _starts(text.splitlines()[i], code, loop))
        lines = text.splitlines()[first : loop.instructions[-1].at + 1]
        if hand:
            return Column(
                f"{title}, from line {first + 1}", tuple(f"{first + n:4} {t}" for n, t in enumerate(lines, 1))
            )
        kept = [line.expandtabs(4) for line in lines if line.strip() and not line.strip().startswith((".loc", "//"))]
        return Column(title, tuple(kept))

    def sass_column(self) -> Column:
        """The loop of the machine code; before each instruction the line of the source, where it is known."""
        title = f"SASS of {self.variant.name}, {self.binary.arch}"
        if self.loop is None:
            return Column(title, ("no loop",))
        if self.loop.of > 1:
            title += f" (the busiest of {self.loop.of} such loops)"
        lines = (f"{i.lines[0] if i.lines else '':>4} {i.text}" for i in self.loop.instructions)
        return Column(title, tuple(lines))


def of_entry(ptx: str, entry: str) -> str:
    """One kernel of a module's text."""
    start = ptx.find(f".entry {entry}(")
    end = ptx.find("\n}", start)
    return ptx[max(start, 0) : end + 2 if end >= 0 else len(ptx)]


def _starts(line: str, code: loops.Code, loop: Loop) -> bool:
    label = line.split("//")[0].strip().rstrip(":")
    return code.labels.get(label) == loop.first
