"""The exercises: what each asks, which kernel it stands in for, and what is looked for in the compiled file.

A starter file of exercises/ fails until it is solved. Adding an exercise is one file there and one line here.
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lowlevel import paths
from lowlevel.errors import UsageError
from lowlevel.toolchain import sass
from lowlevel.toolchain.binary import Binary

_GEMM_SHAPES = "32,1x1x1,31x33x32,64x96x128,257x129x65,1x67x37,100x1x3"


@dataclass(frozen=True)
class Seen:
    """A compiled file as a check sees it: opcodes of the machine code and how often each stands there, and the PTX."""

    opcodes: Counter[str]
    ptx: str

    def count(self, opcode: str) -> int:
        """How often an opcode stands there, by its leading parts: `LDG` counts `LDG.E.128` too."""
        return sum(n for name, n in self.opcodes.items() if sass.has(Counter([name]), opcode))


@dataclass(frozen=True)
class Check:
    """One thing that a solution must have; `text` says it."""

    text: str
    holds: Callable[[Seen], bool]


@dataclass(frozen=True)
class Exercise:
    """file: the starter in exercises/. stands_for: the catalog's kernel whose place it takes. shapes: where its result
    is checked. bench: a shape to time it at. checks: the structure, which is seen without a GPU."""

    number: int
    title: str
    file: str
    stands_for: str
    shapes: str
    bench: str
    checks: tuple[Check, ...]

    @property
    def starter(self) -> Path:
        return paths.exercises_root() / self.file

    def bench_command(self, file: str) -> str:
        return f"lowlevel bench {shlex.quote(file)} --as {self.stands_for} {self.bench}"


def has(opcode: str, what: str, times: int = 1) -> Check:
    """The opcode stands in the machine code so many times at least."""
    count = f"{times} x {opcode}" if times > 1 else opcode
    return Check(f"{what} ({count})", lambda seen: seen.count(opcode) >= times)


def _spreads_columns(seen: Seen) -> bool:
    """Rows an odd number of 4-byte words apart, at least 33, as a factor of an address; or an index made by XOR."""
    factors = re.findall(r"\b(?:mul|mad)\.[\w.]+\s+[^;]*?, (\d+)[,;]", seen.ptx)
    return "xor.b32" in seen.ptx or any(int(n) > 128 and int(n) % 8 == 4 for n in factors)


def _guards_tails(seen: Seen) -> bool:
    code = re.sub(r"//[^\n]*", "", seen.ptx)
    reads = all(re.search(rf"ld\.param\.\w+\s+%\w+\s*,\s*\[{size}\]", code) for size in "MN")
    return reads and len(re.findall(r"\bsetp\.", code)) >= 3


EXERCISES = (
    Exercise(
        1,
        "finish the 32 x 32 tile",
        "01_tile.cu",
        "cuda:gemm/02_tiled",
        _GEMM_SHAPES,
        "1024",
        (
            has("STS", "both tiles are stored to shared memory", 2),
            has("LDS", "and read from there"),
            has("BAR", "a barrier after the stores, and one after the reads", 2),
        ),
    ),
    Exercise(
        2,
        "cure the bank conflicts of a transpose",
        "02_bank_conflicts.cu",
        "cuda:transpose/03_padded",
        "32,1x1,31x33,64x96,257x129,1x67,100x1",
        "4096",
        (
            has("STS", "the tile is stored to shared memory"),
            has("LDS", "and read from there"),
            Check("rows of the tile an odd number of words apart, or a place found by XOR", _spreads_columns),
        ),
    ),
    Exercise(
        3,
        "load four floats at a time",
        "03_float4.cu",
        "cuda:gemm/02_tiled",
        _GEMM_SHAPES,
        "1024",
        (has("LDG.E.128", "16 bytes in one load from global memory"), has("STS", "tiles in shared memory")),
    ),
    Exercise(
        4,
        "write the inner product in PTX",
        "04_inner_loop.ptx",
        "ptx:gemm/01_naive",
        _GEMM_SHAPES,
        "1024",
        (has("LDG", "a word of A and one of B are loaded", 2), has("FFMA", "multiplied and added with one rounding")),
    ),
    Exercise(
        5,
        "guard the tails in PTX",
        "05_tail_guard.ptx",
        "ptx:gemm/01_naive",
        _GEMM_SHAPES,
        "1000x1000x1000",
        (Check("M and N are read, and compared with (3 x setp)", _guards_tails),),
    ),
)


def find(number: int) -> Exercise:
    """UsageError naming the numbers there are."""
    for exercise in EXERCISES:
        if exercise.number == number:
            return exercise
    raise UsageError(f"no exercise {number}; there are {EXERCISES[0].number} to {EXERCISES[-1].number}")


def start(exercise: Exercise, target: Path) -> None:
    """Copies the starter to `target`. UsageError when there is a file already: nothing is overwritten."""
    try:
        with target.open("x") as copy, exercise.starter.open() as starter:
            shutil.copyfileobj(starter, copy)
    except FileExistsError:
        raise UsageError(f"{target} is here already, and stays as it is; move it away to start afresh") from None
    except OSError as error:
        raise UsageError(f"cannot write {target}: {error.strerror}") from None


def structure(exercise: Exercise, binary: Binary) -> list[tuple[str, bool]]:
    """(what is looked for, whether it is there) for each check. MissingError without a disassembler."""
    seen = Seen(sass.instructions(sass.sass(binary.cubin)), binary.ptx)
    return [(check.text, check.holds(seen)) for check in exercise.checks]
