"""A kernel's instructions, read from nvdisasm's listing or from PTX, and where its branches lead."""

from __future__ import annotations

import bisect
import re
from collections.abc import Collection
from dataclasses import dataclass, field

#: What multiplies matrices; address arithmetic (IMAD, mad) is not meant.
_SASS_MULTIPLIES = (
    "HMMA", "IMMA", "DMMA", "BMMA", "QMMA", "OMMA", "HGMMA", "IGMMA", "QGMMA", "UTCHMMA", "FFMA", "FFMA2", "DFMA",
)  # fmt: skip
_PTX_MULTIPLIES = ("fma.", "mma.", "wmma.mma", "wgmma.mma", "tcgen05.mma")
#: What brings operands from global memory, or waits for who does.
_SASS_BRINGS = ("LDG", "LD", "LDGSTS", "UTMALDG", "UBLKCP", "BAR", "SYNCS")
_PTX_BRINGS = ("ld.global", "cp.async", "bar.sync", "barrier.", "mbarrier.")

_FILE_LINE = re.compile(r'"([^"]+)", line (\d+)')
_SASS = re.compile(r"/\*[0-9a-f]+\*/\s+((?:@!?U?P[\dT]+\s+)?([A-Z][A-Z0-9_.a-z]*)[^;]*);")
_SASS_TARGET = re.compile(r"`\((\.L\w+)\)")
_SASS_JUMP = re.compile(r"(?:BRA|JMP)[.\w]* `")  # neither a predicate before nor a condition among the operands
_SASS_LABEL = re.compile(r"\s*(\.L\w+):")

_PTX_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_PTX_TOKEN = re.compile(
    r"(?P<opens>\{)|(?P<closes>\})|(?P<directive>\.[^\n;{]*;?)|(?P<label>[$%\w.]+)\s*:(?!:)"
    r"|(?P<guard>@!?[$%\w]+\s+)?(?P<opcode>[a-z][\w.:]*)(?=[\s;])[^;]*;"
)
_PTX_TARGET = re.compile(r"bra(?:\.uni)?\s+([$%\w]+)\s*;$")


@dataclass(frozen=True)
class Instruction:
    """text: as it is shown. line, last_line: of the listing, from 0. multiplies: matrices. brings: operands of them,
    or waits for them. places: (file, line) that it comes from, the innermost first, each then inlined into the next."""

    text: str
    opcode: str
    line: int
    last_line: int
    multiplies: bool = False
    brings: bool = False
    places: tuple[tuple[str, int], ...] = ()

    @property
    def on_tensor_cores(self) -> bool:
        return self.multiplies and "mma" in self.opcode.lower()


@dataclass
class Code:
    """A kernel's instructions in order. targets: of an instruction that may branch, the one it leads to. ends: those
    that the next one does not follow. labels: before which instruction labels stand, and the line of the first."""

    instructions: list[Instruction] = field(default_factory=list)
    targets: dict[int, int] = field(default_factory=dict)
    ends: set[int] = field(default_factory=set)
    labels: dict[int, int] = field(default_factory=dict)


def read_sass(listing: str, files: Collection[str] = ()) -> Code:
    """One function's listing (`sass.function_text`). files: the names of those whose line numbers are kept."""
    code = Code()
    labels: dict[str, int] = {}
    branches: dict[int, str] = {}
    chain: list[tuple[str, int]] = []
    fresh = True
    for at, line in enumerate(listing.splitlines()):
        index = len(code.instructions)
        if "//##" in line:
            chain = [] if fresh else chain
            fresh = False
            named = [(path.rsplit("/", 1)[-1], int(number)) for path, number in _FILE_LINE.findall(line)[:1]]
            chain += [place for place in named if place[0] in files]
        elif match := _SASS.search(line):
            fresh = True
            text, opcode = " ".join(match[1].split()), match[2]
            first_part = opcode.split(".")[0]
            multiplies, brings = first_part in _SASS_MULTIPLIES, first_part in _SASS_BRINGS
            code.instructions.append(Instruction(text, opcode, at, at, multiplies, brings, tuple(chain)))
            if target := _SASS_TARGET.search(text):
                branches[index] = target[1]
            if _SASS_JUMP.match(text) or text.startswith(("EXIT", "RET", "BRX", "JMX")):
                code.ends.add(index)
        elif match := _SASS_LABEL.match(line):
            labels[match[1]] = index
            code.labels.setdefault(index, at)
    code.targets = {index: labels[name] for index, name in branches.items() if name in labels}
    return code


def read_ptx(text: str, entry: str = "") -> Code:
    """A module's text, or that of one of its kernels. Lines count from the module's first."""
    code = Code()
    text = _PTX_COMMENT.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)
    lines = [match.start() for match in re.finditer("^", text, re.MULTILINE)]
    scopes: list[dict[str, int]] = [{}]
    branches: list[tuple[int, str, list[dict[str, int]]]] = []
    for token in _PTX_TOKEN.finditer(text, *_span_of(text, entry)):
        index = len(code.instructions)
        line, last_line = (bisect.bisect_right(lines, at) - 1 for at in (token.start(), token.end() - 1))
        if token["opens"]:  # a label in braces, as inline assembly has them, is known only there
            scopes.append({})
        elif token["closes"]:
            scopes = scopes[:-1] or [{}]
        elif token["label"]:
            scopes[-1][token["label"]] = index
            code.labels.setdefault(index, line)
        elif opcode := token["opcode"]:
            multiplies, brings = opcode.startswith(_PTX_MULTIPLIES), opcode.startswith(_PTX_BRINGS)
            code.instructions.append(Instruction(token[0], opcode, line, last_line, multiplies, brings))
            if target := _PTX_TARGET.search(token[0]):
                branches.append((index, target[1], list(scopes)))
            if not token["guard"] and opcode.split(".")[0] in ("bra", "brx", "ret", "exit", "trap"):
                code.ends.add(index)
    for index, name, seen in branches:
        known = next((scope[name] for scope in reversed(seen) if name in scope), None)
        if known is not None:
            code.targets[index] = known
    return code


def _span_of(ptx: str, entry: str) -> tuple[int, int]:
    """Where a kernel's text begins and ends in its module's, which has no comments."""
    start = max(ptx.find(f".entry {entry}("), 0) if entry else 0
    depth = 0
    for brace in re.compile(r"[{}]").finditer(ptx, start) if entry else ():
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            return start, brace.end()
    return start, len(ptx)
