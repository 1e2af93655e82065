"""What the toolchain is asked for, and what it makes."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Request:
    """One compilation.

    language: cuda, ptx or mlir. source: the file. arch: as the compiler spells it, `sm_80`, `sm_90a`.
    entries: the kernels wanted, by their names in the file. defines: (name, value) pairs for -D, CUDA C++ only.
    parameters: what each entry will be passed, as C declares it; empty where nobody says. type, lowered_for: MLIR only:
    which of its types, and the oldest architecture that it is written for, whose PTX the code for `arch` is made from.
    """

    language: str
    source: Path
    arch: str
    entries: tuple[str, ...]
    defines: tuple[tuple[str, str], ...] = ()
    parameters: tuple[tuple[str, ...], ...] = ()
    type: str = ""
    lowered_for: str = ""

    def declaration(self, entry: str) -> str:
        """`extern "C" __global__ void gemm(const float* A, ...)`, or nothing where the parameters are not given."""
        found = dict(zip(self.entries, self.parameters, strict=False)).get(entry)
        if found is None:
            return ""
        kind = {"cuda": 'extern "C" __global__ void', "ptx": ".visible .entry"}.get(self.language, "gpu.func")
        return f"{kind} {entry}({', '.join(found)})"


@dataclass(frozen=True)
class Resources:
    """What one kernel takes, as ptxas reports it. Sizes in bytes; `shared` is the static part."""

    registers: int
    stack: int = 0
    spill_stores: int = 0
    spill_loads: int = 0
    shared: int = 0
    barriers: int = 0
    constant: int = 0

    @property
    def spills(self) -> int:
        return self.spill_stores + self.spill_loads


@dataclass(frozen=True)
class Parameter:
    """One kernel parameter as the PTX declares it: its type (`u64`, `s32`, `f32`, or `b8` for a struct)."""

    type: str
    size: int
    align: int


@dataclass(frozen=True)
class Entry:
    name: str
    resources: Resources
    parameters: tuple[Parameter, ...]


@dataclass(frozen=True)
class Binary:
    """A compiled module: machine code for `arch` and the PTX that it came from.

    A driver of `arch` loads `cubin`; another architecture at least as new compiles `ptx`, unless `arch` ends in
    'a' or 'f'. advisories: the compiler's lines that say 'serialized', 'ignored', 'injected' or warn.
    """

    language: str
    arch: str
    cubin: bytes = field(repr=False)
    ptx: str = field(repr=False)
    entries: dict[str, Entry]
    advisories: tuple[str, ...] = ()
    log: str = field(default="", repr=False)
    compiler: str = ""
    seconds: float = 0.0
    cached: bool = False
    source: str = ""
