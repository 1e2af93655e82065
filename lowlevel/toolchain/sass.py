"""Machine code, read: nvdisasm's listing and the instructions in it."""

from __future__ import annotations

import functools
import itertools
import re
import shutil
import struct
import subprocess
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from lowlevel.errors import MissingError

_FUNCTION = re.compile(r"^\s*\.text\.([\w$]+):|^\.section\s+\.text\.([\w$]+)", re.MULTILINE)
_INSTRUCTION = re.compile(r"/\*([0-9a-f]+)\*/\s+(?:@!?U?P[\dT]+\s+)?([A-Z][A-Z0-9_.a-z]*)")
#: Since Volta every instruction has 128 bits.
_INSTRUCTION_BYTES = 16


@functools.cache
def disassembler() -> str | None:
    """The path of nvdisasm: a wheel's, a toolkit's, or the PATH's."""
    try:
        from cuda import pathfinder

        if found := pathfinder.find_nvidia_binary_utility("nvdisasm"):
            return found
    except (ImportError, AttributeError, RuntimeError):
        pass
    return shutil.which("nvdisasm") or shutil.which("nvdisasm", path="/usr/local/cuda/bin")


def sass(cubin: bytes, lines: bool = False) -> str:
    """The listing of a cubin. lines: with the source line before its instructions, and where it was inlined, as far as
    the compiler kept them. Raises MissingError when there is no nvdisasm."""
    return _listing(cubin, ["-c", "-gi"] if lines else ["-c"])


def _listing(data: bytes, options: Sequence[str]) -> str:
    tool = disassembler()
    if tool is None:
        raise MissingError("nvdisasm is missing: pip install nvidia-cuda-nvdisasm, or put a CUDA toolkit's bin on PATH")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(data)
        done = subprocess.run([tool, *options, str(path)], capture_output=True, text=True)
    if done.returncode:
        said = " ".join((done.stderr or done.stdout).split())
        raise MissingError(f"{tool} cannot read this cubin (exit code {done.returncode}): {said}")
    return done.stdout


def function_text(listing: str, entry: str) -> str:
    """The part of a listing that is one kernel's code."""
    marks = [(match.start(), match[1] or match[2]) for match in _FUNCTION.finditer(listing)] + [(len(listing), "")]
    return "".join(listing[a:b] for (a, name), (b, _) in itertools.pairwise(marks) if name == entry)


def instructions(listing: str) -> Counter[str]:
    """How often each opcode stands in a listing, modifiers and all: `HMMA.16816.F32.BF16`."""
    return Counter(match[2] for match in _INSTRUCTION.finditer(listing))


def instructions_of_all(cubins: Sequence[bytes], arch: str) -> list[Counter[str]]:
    """`instructions` of each cubin's listing, all of them for one architecture. Raises MissingError without nvdisasm.

    Their machine code is read at once, one behind the other: nvdisasm takes longer to start than to read ten kernels.
    """
    codes = [machine_code(cubin) for cubin in cubins]
    owners = [i for i, code in enumerate(codes) for _ in range(len(code) // _INSTRUCTION_BYTES)]
    counted: list[Counter[str]] = [Counter() for _ in cubins]
    for match in _INSTRUCTION.finditer(_listing(b"".join(codes), ["-ndf", "-b", arch.replace("sm_", "SM")])):
        counted[owners[int(match[1], 16) // _INSTRUCTION_BYTES]][match[2]] += 1
    return counted


def machine_code(cubin: bytes) -> bytes:
    """The .text sections of a cubin, a 64-bit ELF file, one behind the other."""
    (table,) = struct.unpack_from("<Q", cubin, 0x28)
    size, count, names = struct.unpack_from("<HHH", cubin, 0x3A)
    # Of each section: where in the names its own is, type, flags, address, where it begins, and how long it is.
    sections = [struct.unpack_from("<IIQQQQ", cubin, table + i * size) for i in range(count)]
    first_name = sections[names][4]
    texts = [section for section in sections if cubin.startswith(b".text.", first_name + section[0])]
    return b"".join(cubin[begin : begin + length] for *_, begin, length in texts)


def has(counted: Counter[str], opcode: str) -> bool:
    """Whether an opcode is there, by its leading parts: `HMMA.16816` is met by `HMMA.16816.F32`."""
    return any(name == opcode or name.startswith(opcode + ".") for name in counted)
