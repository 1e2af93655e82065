"""What ptxas says, read: resources per kernel, and the remarks that must not be lost.

NVRTC, nvJitLink and the ptxas program word the same facts differently; all three are read here.
"""

from __future__ import annotations

import re

from lowlevel.toolchain.binary import Resources

_COMPILING = re.compile(r"Compiling entry function '([^']+)'")
_PROPERTIES = re.compile(r"Function properties for '?([\w$]+)'?")
_STACK = re.compile(r"(\d+) bytes stack frame(?:, (\d+) bytes spill stores, (\d+) bytes spill loads)?")
_REGISTERS = re.compile(r"Used (\d+) registers", re.IGNORECASE)
_BARRIERS = re.compile(r"[Uu]sed (\d+) barriers")
_SHARED = re.compile(r"(\d+) bytes smem")
_CONSTANT = re.compile(r"(\d+) bytes cmem")

#: Words of a remark about the program itself. ptxas goes on after them, with slower or repaired code.
_REMARKS = ("serialized", "ignored", "injected", "warning", "potential performance loss")


def resources(log: str) -> dict[str, Resources]:
    """Kernel name -> Resources, from a log made with -v."""
    found: dict[str, dict[str, int]] = {}
    name = ""
    for line in log.splitlines():
        if match := _COMPILING.search(line) or _PROPERTIES.search(line):
            name = match[1]
        if not name:
            continue
        values = found.setdefault(name, {})
        if match := _STACK.search(line):
            values["stack"] = int(match[1])
            values["spill_stores"], values["spill_loads"] = int(match[2] or 0), int(match[3] or 0)
        if match := _REGISTERS.search(line):
            values["registers"] = int(match[1])
            for key, pattern in (("barriers", _BARRIERS), ("shared", _SHARED)):
                if other := pattern.search(line):
                    values[key] = int(other[1])
            values["constant"] = sum(int(n) for n in _CONSTANT.findall(line))
    return {name: Resources(**values) for name, values in found.items() if "registers" in values}


def advisories(log: str) -> tuple[str, ...]:
    """Lines that say that code was serialized, a directive ignored, a wait injected, or warn of anything."""
    lines = (line.strip() for line in log.splitlines() if not line.startswith("Remark: "))  # how to silence warnings
    return tuple(dict.fromkeys(line for line in lines if any(word in line.lower() for word in _REMARKS)))


def first_error(log: str) -> str:
    """The first line that reports an error, else the first line, else a remark that the log is empty."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return next((line for line in lines if re.search(r"\berror\b|fatal", line)), lines[0] if lines else "empty log")
