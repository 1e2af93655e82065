"""`lowlevel sanitize`: kernels at small shapes under compute-sanitizer."""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from lowlevel.catalog.entry import Kernel
from lowlevel.catalog.select import select
from lowlevel.commands import common
from lowlevel.device.cuda.driver import probe
from lowlevel.errors import MissingError, UsageError
from lowlevel.progress import Progress

_TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")
_SUMMARY = re.compile(r"(ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: (\d+) hazard)")
_DEADLINE_S = 300
#: At once: a run is mostly the start of its processes.
_JOBS = 8


def add(commands) -> None:
    parser = commands.add_parser(
        "sanitize",
        help="run kernels at small shapes under compute-sanitizer",
        description="Runs `lowlevel verify` of each kernel at small shapes under NVIDIA's compute-sanitizer. "
        "Exit code 1 if a tool finds anything.",
    )
    parser.add_argument("words", nargs="*", metavar="NAME", help="kernels by name or glob (default: all)")
    what = f"{','.join(_TOOLS)} (the first three)"
    parser.add_argument("--tool", type=common.comma_list, default=_TOOLS[:3], help=what)
    common.add_own(parser)
    common.add_output(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    if unknown := set(arguments.tool) - set(_TOOLS):
        raise UsageError(f"no tool '{sorted(unknown)[0]}'; there are: {', '.join(_TOOLS)}")
    kernels = list(dict.fromkeys(v.kernel for v in select(common.with_own(arguments.words, arguments))))
    tool = sanitizer()
    if reason := probe():
        raise MissingError(f"sanitize needs a GPU: {reason}")
    work = [(name, kernel, check) for kernel in kernels for name in names(kernel) for check in arguments.tool]
    rows = []
    with Progress(len(work), "sanitizing") as progress, ThreadPoolExecutor(_JOBS) as pool:
        runs = pool.map(lambda one: sanitized(tool, one[2], one[0], shapes(one[1])), work)
        for (name, kernel, check), found in zip(work, runs, strict=True):
            rows.append({"kernel": kernel.shown if name == kernel.label else name, "tool": check, **found})
            progress.advance()
    common.print_rows(rows, arguments)
    return int(any(row["findings"] != 0 for row in rows))


def names(kernel: Kernel) -> list[str]:
    """What is run of a kernel: its first configuration, and the others where it chooses among them by shape."""
    others = kernel.configs[1:] if kernel.choose else ()
    first = kernel.variants()[0]
    return [kernel.label, *(replace(first, config=config).name for config in others)]


def shapes(kernel: Kernel) -> str:
    """Small, since the sanitizer runs kernels a hundred times slower, but more than one tile in every dimension, and k
    for every slice; once with odd tails and once with rows that are multiples of 16 bytes."""
    if kernel.operation == "probe":
        return ""
    m, n = (max(config.get(key, 64) for config in kernel.configs) for key in ("BM", "BN"))
    if kernel.operation == "gemm":
        k = max(64, *(config.get("SPLITS", 0) * config.get("BK", 0) for config in kernel.configs))
        return f"{m + 1}x{n + 1}x{k + 6},{m + 8}x{n + 8}x{k + 8}"
    return f"{m + 1}x{n + 33},{2 * m + 16}x{3 * n + 16}"


def sanitizer() -> str:
    """The path of compute-sanitizer, or MissingError."""
    for folder in (None, "/usr/local/cuda/bin", "/usr/local/cuda/compute-sanitizer"):
        if found := shutil.which("compute-sanitizer", path=folder):
            return found
    raise MissingError("compute-sanitizer is missing: put a CUDA toolkit's bin on PATH")


def sanitized(tool: str, check: str, name: str, shape: str) -> dict:
    """{'findings': count or None when the tool itself failed, 'said': its first finding or summary}."""
    command = [tool, "--tool", check, sys.executable, "-m", "lowlevel", "verify", name, *([shape] if shape else [])]
    command += ["--in-process", "--kind", "integer", "--repeats", "1"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_DEADLINE_S)
    except subprocess.TimeoutExpired:
        return {"findings": None, "said": f"no end after {_DEADLINE_S} s"}
    return summary(done.stdout + done.stderr, done.returncode)


def summary(text: str, code: int) -> dict:
    """What a run of the tool found. A run without a summary, or of a program that failed, found nothing out."""
    lines = [line.lstrip("= ").strip() for line in text.splitlines() if line.startswith("=========")]
    match = next((m for m in map(_SUMMARY.search, lines) if m), None)
    if match is None:
        return {"findings": None, "said": (text.strip().splitlines() or ["no output"])[-1][:160]}
    findings = int(match[2] or match[3])
    if findings == 0 and code:
        told = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("=========")]
        return {"findings": None, "said": f"the program failed with code {code}: {(told or ['no output'])[-1][:120]}"}
    first = next((line for line in lines if line and "COMPUTE-SANITIZER" not in line), "")
    return {"findings": findings, "said": first if findings else match[1]}
