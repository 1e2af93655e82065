"""Finding cuBLAS and cuBLASLt, and the signatures of what is called in them."""

from __future__ import annotations

import ctypes
import functools
import os
import re
from ctypes import POINTER, byref, c_float, c_int, c_int64, c_size_t, c_uint64, c_void_p
from dataclasses import dataclass

from lowlevel.cublas.constants import NOT_SUPPORTED, STATUS, WORKSPACE_BYTES
from lowlevel.errors import DeviceError, MissingError, UsageError

_INSTALL = "pip install nvidia-cublas (CUDA 12: nvidia-cublas-cu12)"


class Heuristic(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = (
        ("algo", c_uint64 * 8),
        ("workspace", c_size_t),
        ("state", c_int),
        ("waves", c_float),
        ("reserved", c_int * 4),
    )


_P, _I, _Z = c_void_p, c_int, c_size_t
_CUBLAS = {
    "cublasCreate_v2": (POINTER(_P),),
    "cublasGetVersion_v2": (_P, POINTER(_I)),
    "cublasSetStream_v2": (_P, _P),
    "cublasSetWorkspace_v2": (_P, _P, _Z),
    "cublasSetMathMode": (_P, _I),
    "cublasSgemm_v2": (_P, _I, _I, _I, _I, _I, _P, _P, _I, _P, _I, _P, _P, _I),
    "cublasGemmEx": (_P, _I, _I, _I, _I, _I, _P, _P, _I, _I, _P, _I, _I, _P, _P, _I, _I, _I, _I),
}
_LT = {
    "cublasLtCreate": (POINTER(_P),),
    "cublasLtMatmulDescCreate": (POINTER(_P), _I, _I),
    "cublasLtMatmulDescDestroy": (_P,),
    "cublasLtMatmulDescSetAttribute": (_P, _I, _P, _Z),
    "cublasLtMatrixLayoutCreate": (POINTER(_P), _I, c_uint64, c_uint64, c_int64),
    "cublasLtMatrixLayoutDestroy": (_P,),
    "cublasLtMatmulPreferenceCreate": (POINTER(_P),),
    "cublasLtMatmulPreferenceDestroy": (_P,),
    "cublasLtMatmulPreferenceSetAttribute": (_P, _I, _P, _Z),
    "cublasLtMatmulAlgoGetHeuristic": (_P, _P, _P, _P, _P, _P, _P, _I, POINTER(Heuristic), POINTER(_I)),
    "cublasLtMatmul": (_P, _P, _P, _P, _P, _P, _P, _P, _P, _P, _P, _P, _P, _P, _Z, _P),
}


@dataclass(frozen=True)
class Libraries:
    """Both libraries, loaded, and where and how they were found: in a wheel, a toolkit or the system."""

    cublas: ctypes.CDLL
    lt: ctypes.CDLL
    found_via: str
    cublas_path: str = ""
    lt_path: str = ""

    def check(self, status: int, doing: str) -> None:
        """Raises DeviceError with cuBLAS's name for the status, and what it usually means."""
        if status:
            name, hint = STATUS.get(status, (f"CUBLAS_STATUS_{status}", "see cublasStatus_t in cublas_api.h"))
            if status == NOT_SUPPORTED:  # a refusal, not a fault: the next call may well work
                raise UsageError(f"{name} while {doing}: {hint}")
            raise DeviceError(f"{name} while {doing}: {hint}", name, status)

    def version(self, handle: c_void_p) -> int:
        """cuBLAS's own: 130100 is 13.1.0."""
        number = c_int()
        self.check(self.cublas.cublasGetVersion_v2(handle, byref(number)), "asking cuBLAS's version")
        return number.value

    def check_pair(self, handle: c_void_p) -> None:
        """Raises MissingError when the two are of different releases: another's cuBLASLt was found first."""
        cublas, lt = self.version(handle), self.lt.cublasLtGetVersion()
        if cublas // 100 != lt // 100:
            raise MissingError(
                f"cuBLAS {version_text(cublas)} ({self.cublas_path}) found cuBLASLt {version_text(lt)} "
                f"({self.lt_path}), of another release: take the folder of one out of LD_LIBRARY_PATH"
            )


@functools.cache
def load() -> Libraries:
    """Raises MissingError with the command that installs cuBLAS when there is none."""
    try:
        from cuda import pathfinder
    except ImportError:
        raise MissingError("cuda-pathfinder is missing: pip install cuda-pathfinder") from None
    try:
        # Lt first: cuBLAS would otherwise load whichever libcublasLt the loader's path has.
        lt = pathfinder.load_nvidia_dynamic_lib("cublasLt")
        cublas = pathfinder.load_nvidia_dynamic_lib("cublas")
    except (RuntimeError, OSError) as error:
        reason = str(error).splitlines()[0].split(":")[0]
        raise MissingError(f"cuBLAS is missing ({reason}): {_INSTALL}") from None
    return declare(
        ctypes.CDLL(cublas.abs_path),
        ctypes.CDLL(lt.abs_path),
        cublas.found_via or "unknown",
        cublas.abs_path or "",
        lt.abs_path or "",
    )


def declare(cublas, lt, found_via: str, cublas_path: str = "", lt_path: str = "") -> Libraries:
    """Gives every function used its argument types: ctypes would pass pointers as 32-bit integers.

    Raises MissingError for a library too old to have one of them.
    """
    for library, functions in ((cublas, _CUBLAS), (lt, _LT)):
        for name, types in functions.items():
            try:
                function = getattr(library, name)
            except AttributeError:
                raise MissingError(f"the cuBLAS found has no {name}, it is too old: {_INSTALL}") from None
            function.argtypes, function.restype = types, c_int
    lt.cublasLtGetVersion.argtypes, lt.cublasLtGetVersion.restype = (), c_size_t
    return Libraries(cublas, lt, found_via, cublas_path, lt_path)


def version_text(number: int) -> str:
    """130100 is 13.1.0."""
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def public_path(path: str) -> str:
    """A path without what names a user: in a wheel from `site-packages` on, else with the home folder as `~`."""
    if wheel := re.search(r"[^/\\]*(?:site|dist)-packages[/\\].*", path):
        return wheel[0]
    home = os.path.expanduser("~")
    return "~" + path[len(home) :] if path.startswith(home + os.sep) else path


def describe(handle: c_void_p | None = None) -> dict[str, object]:
    """cuBLAS's part of a results file's environment. cuBLAS tells its version only to a handle."""
    libraries = load()
    return {
        "cublas": version_text(libraries.version(handle)) if handle is not None else None,
        "cublaslt": version_text(libraries.lt.cublasLtGetVersion()),
        "cublas_found_via": libraries.found_via,
        "cublas_path": public_path(libraries.cublas_path),
        "cublaslt_path": public_path(libraries.lt_path),
        "cublas_math_mode": "default, partial sums in fp32; pedantic in library/cublas_pedantic; TF32 for tf32 only",
        "cublas_workspace_bytes": WORKSPACE_BYTES,
        "tf32_override": os.environ.get("NVIDIA_TF32_OVERRIDE"),
    }
