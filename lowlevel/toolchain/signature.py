"""What a PTX module declares: version, target, entries and their parameters."""

from __future__ import annotations

import re

from lowlevel.toolchain.binary import Parameter

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_ENTRY = re.compile(r"\.entry\s+([\w$]+)\s*(?:\((.*?)\))?", re.DOTALL)
_PARAM = re.compile(r"\.param\s+(.*?)\s*([\w$]+)\s*(?:\[(\d+)\])?\s*$", re.DOTALL)
_ALIGN = re.compile(r"\.align\s+(\d+)")
# `.ptr .global .align 16` speaks of what a pointer points at.
_POINTEE = re.compile(r"\.ptr\b(?:\s*\.(?:const|global|local|shared)\b)?(?:\s*\.align\s+\d+)?")
_TYPE = re.compile(r"\.([bsuf]\d+)\b")


def version(ptx: str) -> tuple[int, int]:
    """The `.version` of a module: (8, 0)."""
    match = re.search(r"^\s*\.version\s+(\d+)\.(\d+)", _COMMENT.sub("", ptx), re.MULTILINE)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def target(ptx: str) -> str:
    """The `.target` of a module: `sm_90a`."""
    match = re.search(r"^\s*\.target\s+(\w+)", _COMMENT.sub("", ptx), re.MULTILINE)
    return match[1] if match else ""


def entries(ptx: str) -> dict[str, tuple[Parameter, ...]]:
    """Kernel name -> parameters, in order."""
    found = {}
    for match in _ENTRY.finditer(_COMMENT.sub("", ptx)):
        declared = [text for text in (match[2] or "").split(",") if text.strip()]
        found[match[1]] = tuple(_parameter(text) for text in declared)
    return found


def _parameter(text: str) -> Parameter:
    match = _PARAM.match(_POINTEE.sub("", text.strip()))
    type_ = _TYPE.search(match[1])[1]
    element = int(type_[1:]) // 8
    align = _ALIGN.search(match[1])
    size = element * int(match[3] or 1)
    return Parameter(type_, size, int(align[1]) if align else element)
