"""Where things are: the kernels, the suites, the caches. A checkout and an installed wheel differ only here."""

from __future__ import annotations

import os
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
_CHECKOUT = _PACKAGE.parent


def in_checkout() -> bool:
    """True when the package lies in its repository, beside cu/ and ptx/."""
    return (_CHECKOUT / "cu" / "gemm").is_dir()


def kernel_root() -> Path:
    """The folder that holds cu/, ptx/ and mlir/."""
    return _CHECKOUT if in_checkout() else _PACKAGE / "kernels"


def suites_root() -> Path:
    return _CHECKOUT / "bench" / "suites" if in_checkout() else _PACKAGE / "kernels" / "suites"


def exercises_root() -> Path:
    """The folder of the exercises' starter files."""
    return kernel_root() / "exercises"


def results_root() -> Path:
    """Where `bench --suite` writes: bench/results of the checkout, else of the current folder."""
    return (_CHECKOUT if in_checkout() else Path.cwd()) / "bench" / "results"


def tuned_root() -> Path:
    """The tuned choices that the project ships, a file a GPU."""
    return _CHECKOUT / "bench" / "tuned" if in_checkout() else _PACKAGE / "kernels" / "tuned"


def user_tuned_root() -> Path:
    """The user's own tuned choices, which win over those shipped."""
    return cache_dir() / "tuned"


def gpu_slug(name: str) -> str:
    """`NVIDIA H200` is h200, `NVIDIA A100-SXM4-80GB` a100-sxm4-80gb."""
    return name.lower().replace("nvidia", "").strip().replace(" ", "-")


def cache_dir() -> Path:
    """Compiled kernels and tuned choices: $LOWLEVEL_CACHE, else the user's cache folder."""
    if own := os.environ.get("LOWLEVEL_CACHE"):
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "lowlevel"
