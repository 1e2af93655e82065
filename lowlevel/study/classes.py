"""What kind of work a SASS instruction does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

#: class -> the opcodes that it holds, by their first part. The first that fits counts.
CLASSES: dict[str, tuple[str, ...]] = {
    "tensor cores": ("HMMA", "IMMA", "DMMA", "BMMA", "QMMA", "HGMMA", "IGMMA", "QGMMA", "OMMA", "UTCHMMA"),
    "multiply-add": ("FFMA", "DFMA", "FFMA2", "IDP"),
    "matrix load from shared": ("LDSM", "MOVM"),
    "load from shared": ("LDS",),
    "store to shared": ("STS", "STSM"),
    "copy to shared": ("LDGSTS", "UTMALDG", "UBLKCP"),
    "load from global": ("LDG", "LD"),
    "store to global": ("STG", "ST", "UTMASTG", "RED", "ATOMG"),
    "local memory (spills)": ("LDL", "STL"),
    "barriers and waits": (
        "BAR", "DEPBAR", "LDGDEPBAR", "SYNCS", "WARPSYNC", "BSYNC", "BSSY", "MEMBAR", "ERRBAR", "CCTL", "FENCE",
        "WARPGROUP", "ARRIVES", "UTMACMDFLUSH", "NANOSLEEP", "ACQBULK",
    ),
    "branches": ("BRA", "BRX", "JMP", "CALL", "RET", "EXIT", "BREAK", "YIELD"),
    "half-precision arithmetic": ("HADD2", "HMUL2", "HMNMX2"),
    "float arithmetic": ("FADD", "FMUL", "FMNMX", "FSETP", "FSEL", "MUFU", "FCHK", "DADD", "DMUL"),
    "conversions": ("F2F", "F2FP", "F2I", "I2F", "I2FP", "I2I", "FRND"),
    "predicates and comparisons": ("ISETP", "UISETP", "PLOP3", "UPLOP3", "P2R", "R2P", "VOTE", "VOTEU", "HSETP2"),
    "moves": (
        "MOV", "UMOV", "PRMT", "UPRMT", "SEL", "USEL", "S2R", "S2UR", "CS2R", "R2UR", "LDC", "ULDC", "LDCU", "SHFL",
        "HFMA2", "REDUX", "ELECT",
    ),
    "integers and addresses": (
        "IADD", "IADD3", "UIADD3", "IMAD", "UIMAD", "LOP3", "ULOP3", "SHF", "USHF", "LEA", "ULEA", "IABS", "IMNMX",
        "VIADD", "VIMNMX", "BMSK", "SGXT", "USGXT", "POPC", "FLO", "BREV", "VIADDMNMX", "LOP",
    ),
}  # fmt: skip
_OTHER = "others"


def class_of(opcode: str) -> str:
    """`HMMA.16816.F32` -> `tensor cores`."""
    head = opcode.split(".")[0]
    if opcode.startswith("IMAD.MOV"):  # a move by the multiplier
        return "moves"
    return next((name for name, opcodes in CLASSES.items() if head in opcodes), _OTHER)


def mix(opcodes: Iterable[str]) -> dict[str, int]:
    """How many of each class, in the order of the classes; none that is not there. NOPs fill up a kernel's end."""
    counted = Counter(class_of(opcode) for opcode in opcodes if opcode != "NOP")
    return {name: counted[name] for name in (*CLASSES, _OTHER) if counted[name]}


def table(mixes: dict[str, dict[str, int]]) -> list[dict]:
    """A row a class, a column a mix, and the sum."""
    order = [name for name in (*CLASSES, _OTHER) if any(name in found for found in mixes.values())]
    rows = [{"instructions": name, **{of: found.get(name, 0) for of, found in mixes.items()}} for name in order]
    return [*rows, {"instructions": "all", **{of: sum(found.values()) for of, found in mixes.items()}}]
