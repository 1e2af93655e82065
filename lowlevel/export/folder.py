"""The exported folder: which files it has, and writing them."""

from __future__ import annotations

import json
import re
from pathlib import Path

from lowlevel.catalog.entry import Variant
from lowlevel.errors import UsageError
from lowlevel.export import caller_c, caller_python, example
from lowlevel.export.description import CUBIN, PTX, describe
from lowlevel.files import write_whole
from lowlevel.hardware import Limits
from lowlevel.problems.base import Problem
from lowlevel.toolchain.binary import Binary


def files(variant: Variant, problem: Problem, binary: Binary, limits: Limits) -> dict[str, bytes]:
    """File name -> content. Raises UsageError for a problem that the kernel does not take."""
    description = describe(variant, problem, binary, limits)
    formula = example.formula(problem)
    text = json.dumps(description, indent=1)
    # Lists of numbers on one line each: the file is read by people too.
    text = re.sub(r"\[\s+([^][{}]*?)\s+\]", lambda m: f"[{' '.join(m[1].split())}]", text)
    return {
        CUBIN: binary.cubin,
        PTX: binary.ptx.encode(),
        "launch.json": f"{text}\n".encode(),
        "call.py": caller_python.write(description, problem, formula).encode(),
        "call.c": caller_c.write(description, problem, formula).encode(),
    }


def write_all(folder: Path, contents: dict[str, bytes]) -> list[Path]:
    """Writes each file whole, in place of one of the same name; leaves all others alone. The paths written."""
    try:
        for name, content in contents.items():
            write_whole(folder / name, content)
    except OSError as error:
        raise UsageError(f"cannot write to {folder}: {error.strerror}") from None
    return [folder / name for name in contents]
