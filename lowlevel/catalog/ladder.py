"""The ladder as a table: a line for each kernel, a column for each language it is written in."""

from __future__ import annotations

from tabulate import tabulate

from lowlevel import catalog
from lowlevel.catalog.entry import LANGUAGES, Kernel

_HEADINGS = {"cuda": "CUDA C++", "ptx": "PTX by hand", "mlir": "MLIR"}


def markdown() -> str:
    """Every kernel but the probes, with links to its files relative to the root, and its idea."""
    kernels = [kernel for kernel in catalog.kernels() if kernel.operation != "probe"]
    languages = [name for name in LANGUAGES if any(kernel.language == name for kernel in kernels)]
    files = {(kernel.name, kernel.language): f"[{_title(kernel)}]({kernel.path})" for kernel in kernels}
    lines = [
        [_number(kernel), *(files.get((kernel.name, language), "") for language in languages), catalog.idea(kernel)]
        for kernel in {kernel.name: kernel for kernel in kernels}.values()
    ]
    return tabulate(lines, ["", *(_HEADINGS[name] for name in languages), "idea"], "github", disable_numparse=True)


def _number(kernel: Kernel) -> str:
    """`gemm 02`."""
    return f"{kernel.operation} {kernel.rung.split('_')[0]}"


def _title(kernel: Kernel) -> str:
    """`register tile`."""
    return kernel.rung.split("_", 1)[1].replace("_", " ")
