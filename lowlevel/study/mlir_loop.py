"""The loop of an MLIR source in which the work is done. MLIR-lowered PTX names no lines, so it is found in the text."""

from __future__ import annotations

import re

#: A loop of the program; affine.for is unrolled before it becomes one.
_LOOP = re.compile(r"\bscf\.(?:for|while)\b")
_MULTIPLIES = re.compile(
    r"\b(?:nvgpu\.(?:warpgroup\.)?mma|nvvm\.mma|nvvm\.wgmma\.mma_async|math\.fma|linalg\.matmul)\b"
)
_BRINGS = re.compile(r"\b(?:memref\.load|linalg\.copy|(?:gpu|nvvm)\.barrier)\b|async|mbarrier|\btma\b")


def main_loop(text: str) -> tuple[int, int] | None:
    """(first, last) lines, from 1, of the smallest loop that multiplies and also brings what it multiplies, or waits
    for it; of several the longest, which is the one that does more at once. None where there is no such loop."""
    code = re.sub(r"//[^\n]*", lambda match: " " * len(match[0]), text)
    spans = [(match.start(), _end(code, code.index("{", match.end()))) for match in _LOOP.finditer(code)]
    fed = [s for s in spans if _MULTIPLIES.search(code, *s) and _BRINGS.search(code, *s)]
    inner = [s for s in fed if not any(s[0] < other[0] and other[1] < s[1] for other in fed)]
    if not inner:
        return None
    start, end = max(inner, key=lambda s: s[1] - s[0])
    return code.count("\n", 0, start) + 1, code.count("\n", 0, end) + 1


def _end(code: str, brace: int) -> int:
    """Where the region ends that opens at `brace`; a while's second region belongs to it."""
    depth = 0
    for index in range(brace, len(code)):
        depth += (code[index] == "{") - (code[index] == "}")
        if depth == 0 and code[index] == "}" and not re.match(r"\s*do\b", code[index + 1 :]):
            return index
    return len(code) - 1
