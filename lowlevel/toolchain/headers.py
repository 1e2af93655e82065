"""Which files a source pulls in, and where CUDA's own headers are."""

from __future__ import annotations

import re
from pathlib import Path

from lowlevel import paths

_INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]', re.MULTILINE)

#: Headers, and what carries them, for the message when one is missing.
_CARRIERS = (
    (
        "cuda_fp16.h cuda_bf16.h cuda_fp8.h cuda_runtime.h cuda_pipeline.h",
        "pip install nvidia-cuda-runtime (CUDA 12: nvidia-cuda-runtime-cu12), or set CUDA_HOME to a toolkit",
    ),
    (
        "mma.h crt/mma.h",
        "pip install nvidia-cuda-crt (CUDA 12: nvidia-cuda-nvcc-cu12), or set CUDA_HOME to a toolkit",
    ),
    (
        "cooperative_groups.h cuda/barrier cuda/pipeline nv/target cuda/std/type_traits cuda/std/cstdint",
        "pip install nvidia-cuda-cccl (CUDA 12: nvidia-cuda-cccl-cu12), or set CUDA_HOME to a toolkit",
    ),
    (
        "stdint.h stddef.h stdlib.h stdio.h string.h math.h assert.h cstdint cstddef cmath type_traits utility",
        "NVRTC has no standard library; do without, or include <cuda/std/...> of nvidia-cuda-cccl",
    ),
)


def include_dir() -> Path:
    """The project's own headers, one an instruction family."""
    return paths.kernel_root() / "cu" / "include"


def included(source: Path) -> tuple[list[Path], list[str]]:
    """(project files, recursively; names of others: `<...>`, or "..." and not found), each once, in order."""
    files: dict[Path, None] = {}
    system: dict[str, None] = {}
    _walk(source, files, system)
    return list(files), list(system)


def _walk(source: Path, files: dict[Path, None], system: dict[str, None]) -> None:
    for kind, name in _INCLUDE.findall(source.read_text(encoding="utf-8", errors="replace")):
        folders = (source.parent, include_dir()) if kind == '"' else (include_dir(),)
        path = next((folder / name for folder in folders if (folder / name).is_file()), None)
        if path is None:
            system[name] = None
        elif path not in files:
            files[path] = None
            _walk(path, files, system)


def cuda_include_dirs() -> list[Path]:
    """CUDA's header folders, from wheels or a toolkit, as far as they are installed."""
    try:
        from cuda import pathfinder
    except ImportError:
        return []

    found = []
    for component in ("cudart", "cccl", "nvcc"):
        folder = pathfinder.find_nvidia_header_directory(component)
        if folder and Path(folder) not in found:
            found.append(Path(folder))
    return found


def missing_header_advice(name: str) -> str:
    """What to do about a header that no folder has."""
    for headers, advice in _CARRIERS:
        if name in headers.split():
            return advice
    return "it is neither beside the source nor in cu/include, and no CUDA wheel is known to carry it"
