"""One main loop as written and as run: CUDA C++ or MLIR, PTX and SASS."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lowlevel import catalog, paths
from lowlevel.catalog.entry import Variant
from lowlevel.catalog.select import one_kernel
from lowlevel.study import listing, loops, mlir_loop, source_loop
from lowlevel.study.classes import mix
from lowlevel.study.listing import Instruction
from lowlevel.study.loops import Loop
from lowlevel.study.twins import like
from lowlevel.toolchain import headers, sass
from lowlevel.toolchain.build import build

#: More than eight registers in braces: the first two, and the last.
_LONG_LIST = re.compile(r"\{ *(%\w+, *%\w+)(?:, *%\w+){6,}, *(%\w+) *\}")


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
    for CUDA C++, the compiler's PTX; without, the SASS of CUDA C++ beside the hand-written PTX where there is one. MLIR
    is shown where it is named, or there is nothing else.

    Raises UsageError for a name that is none or several, MissingError without nvdisasm.
    """
    found = one_kernel(name)
    if all(v.kernel.language == "mlir" for v in found):
        only = Compiled(found[0], arch)
        return Side((only.source_column(), only.ptx_column(), only.sass_column()), _mixes([only]))
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
    return Side(tuple(columns), _mixes(compiled.values()))


def _mixes(compiled: Iterable[Compiled]) -> dict[str, dict[str, int]]:
    return {c.variant.name: mix(i.opcode for i in c.loop.instructions) for c in compiled if c.loop}


class Compiled:
    """A variant's binary, and the main loop of its SASS."""

    def __init__(self, variant: Variant, arch: str):
        self.variant = variant
        source = paths.kernel_root() / variant.kernel.path
        headers_of = headers.included(source)[0] if variant.kernel.language == "cuda" else []
        self.files = {path.name: path for path in (*headers_of, source)}
        self.binary = build(catalog.request(variant, arch))
        text = sass.function_text(sass.sass(self.binary.cubin, lines=True), variant.kernel.entry)
        self.loop = loops.main_loop(listing.read_sass(text, self.files))
        self.place = self._source_loop()

    def _source_loop(self) -> tuple[str, int, int] | None:
        """(file, first, last line) of the statement that the SASS loop comes from."""
        if self.loop is None or self.variant.kernel.language == "ptx":
            return None
        if self.variant.kernel.language == "mlir":
            ((name, path),) = self.files.items()
            span = mlir_loop.main_loop(path.read_text())
            return (name, *span) if span else None
        sources = {name: path.read_text() for name, path in self.files.items()}
        work = [i.places for i in self.loop.instructions if i.multiplies]
        work = work or [i.places for i in self.loop.instructions]
        return source_loop.main_loop(sources, self.loop.closing.places, work)

    def source_column(self) -> Column:
        """The loop statement that the SASS loop comes from, with its line numbers."""
        kernel = self.variant.kernel
        language = "MLIR" if kernel.language == "mlir" else "CUDA C++"
        if self.place is None:
            return Column(f"{language}: {kernel.path}", ("no loop",))
        file, first, last = self.place
        path = self.files[file].relative_to(paths.kernel_root()).as_posix()
        title = f"{language}: {path}, lines {first} to {last}" + (f", for {kernel.path}" if path != kernel.path else "")
        return Column(title, tuple(_numbered(self.files[file].read_text().splitlines(), first - 1, last - 1)))

    def ptx_column(self) -> Column:
        """The loop of the PTX: as it was written, comments and all, or as the compiler made it."""
        hand = self.variant.kernel.language == "ptx"
        title = f"PTX by hand: {self.variant.kernel.path}" if hand else "PTX of the compiler"
        loop = loops.main_loop(listing.read_ptx(self.binary.ptx, self.variant.kernel.entry))
        if loop is None:
            return Column(title, ("no loop",))
        lines = self.binary.ptx.splitlines()
        spans = _spans(loop)
        if hand:
            pieces = [_numbered(lines, *span) for span in spans]
            return Column(f"{title}, from line {spans[0][0] + 1}", _joined(pieces))
        return Column(title, _joined([_said(lines[first : last + 1]) for first, last in spans]))

    def sass_column(self) -> Column:
        """The loop of the machine code; before each instruction the line of the source, where it is known."""
        title = f"SASS of {self.variant.name}, {self.binary.arch}"
        if self.loop is None:
            return Column(title, ("no loop",))
        if self.loop.of > 1:
            title += f" (the busiest of {self.loop.of} such loops)"
        code = self.loop.code.instructions
        return Column(
            title, _joined([[f"{self._line_of(code[i]):>4} {code[i].text}" for i in run] for run in self.loop.runs])
        )

    def _line_of(self, instruction: Instruction) -> str:
        """The innermost line of the file that the loop's statement stands in."""
        file = self.place[0] if self.place else ""
        return next((str(line) for name, line in instruction.places if name == file), "")


def _spans(loop: Loop) -> list[tuple[int, int]]:
    """The first and last line of each piece of a loop, with the label before it."""
    code = loop.code
    return [
        (code.labels.get(run[0], code.instructions[run[0]].line), code.instructions[run[-1]].last_line)
        for run in loop.runs
    ]


def _numbered(lines: Sequence[str], first: int, last: int) -> list[str]:
    return [f"{number + 1:4} {lines[number]}" for number in range(first, last + 1)]


def _said(lines: Sequence[str]) -> list[str]:
    """The compiler's PTX without what it says of lines and inline assembly, and without most of a long list of
    registers: a wgmma names up to 128 sums."""
    kept = (line.expandtabs(4) for line in lines if line.strip() and not line.strip().startswith((".loc", "//")))
    return [_LONG_LIST.sub(r"{\1, ... \2}", line) for line in kept]


def _joined(pieces: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """The pieces of a loop, three dots for what lies between them and is not of the loop."""
    return tuple(line for piece in pieces for line in ("     ...", *piece))[1:]
