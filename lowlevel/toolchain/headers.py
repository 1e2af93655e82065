"""Which files a source pulls in, and where CUDA's own headers are."""

from __future__ import annotations

import re
from pathlib import Path

from lowlevel import paths

_INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]', re.MULTILINE)

#: Header -> the wheel that carries it, for the message when it is missing.
_WHEELS = (
    ("cuda_fp16.h cuda_bf16.h cuda_fp8.h cuda_runtime.h cuda_pipeline.h", "nvidia-cuda-runtime"),
    ("mma.h crt/mma.h", "nvidia-cuda-crt (CUDA 12: nvidia-cuda-nvcc-cu12)"),
    ("cooperative_groups.h cuda/barrier cuda/pipeline nv/target cuda/std/type_traits", "nvidia-cuda-cccl"),
)


def include_dir() -> Path:
    """The project's own headers, one an instruction family."""
    return paths.kernel_root() / "cu" / "include"


def included(source: Path) -> tuple[list[Path], list[str]]:
    """(files of `#include "..."`, recursively; names in `#include <...>`), each once, in order."""
    files: dict[Path, None] = {}
    system: dict[str, None] = {}
    _walk(source, files, system)
    return list(files), list(system)


def _walk(source: Path, files: dict[Path, None], system: dict[str, None]) -> None:
    for kind, name in _INCLUDE.findall(source.read_text(errors="replace")):
        if kind == "<":
            system[name] = None
            continue
        for folder in (source.parent, include_dir()):
            path = folder / name
            if path.is_file() and path not in files:
                files[path] = None
                _walk(path, files, system)
                break


def cuda_include_dirs() -> list[Path]:
    """CUDA's header folders, from wheels or a toolkit, as far as they are installed."""
    from cuda import pathfinder

    found = []
    for component in ("cudart", "cccl", "nvcc"):
        folder = pathfinder.find_nvidia_header_directory(component)
        if folder and Path(folder) not in found:
            found.append(Path(folder))
    return found


def missing_header_advice(name: str) -> str:
    """What to install for a header that no folder has."""
    for headers, wheel in _WHEELS:
        if name in headers.split():
            return f"pip install {wheel}, or set CUDA_HOME to a toolkit"
    return "it is neither beside the source nor in cu/include, and no CUDA wheel is known to carry it"
