"""Where and with what a run was made: the `environment` of a results file. No host names, no users' folders."""

from __future__ import annotations

import contextlib
import datetime
import os
import platform
import subprocess
from importlib import metadata

import lowlevel
from lowlevel import paths
from lowlevel.cublas import libraries
from lowlevel.device.cuda.driver import driver_version
from lowlevel.errors import LowlevelError
from lowlevel.measure import nvml
from lowlevel.toolchain import nvjitlink, nvrtc

_PACKAGES = ("cuda-bindings", "cuda-pathfinder", "numpy", "ml_dtypes")


def environment(device) -> dict:
    """Everything about a CUDA device's surroundings that a figure may depend on."""
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "lowlevel": lowlevel.__version__,
        **git(),
        "gpu": device.name,
        "uuid": device.uuid,
        "sms": device.limits.sms,
        "arch": device.limits.arch,
        "l2_bytes": device.limits.l2_bytes,
        "memory_bytes": device.limits.memory_bytes,
        "sm_clock_max_mhz": device.limits.sm_clock_mhz,
        "memory_clock_max_mhz": device.limits.memory_clock_mhz,
        "memory_bus_bits": device.limits.memory_bus_bits,
        "cuda_driver": ".".join(map(str, driver_version())),
        **board(device.uuid),
        "nvrtc": _version(nvrtc.compiler_name),
        "nvjitlink": _version(nvjitlink.compiler_name),
        **_cublas(device),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        **{name: _package(name) for name in _PACKAGES},
    }


def board(uuid: str) -> dict:
    """NVML's part: driver release, power limit now and by default, persistence mode, ECC, MIG, and the other processes
    on the GPU. What NVML does not say is None."""
    names = ("driver", "power_limit_w", "power_default_w", "persistence", "ecc", "mig", "other_processes")
    facts: dict = dict.fromkeys(names)
    found = nvml.handle(uuid)
    if not found:
        return facts
    library, handle = found

    def ask(function, *arguments):
        with contextlib.suppress(library.NVMLError):
            return function(*arguments)
        return None

    facts["driver"] = ask(library.nvmlSystemGetDriverVersion)
    limit = ask(library.nvmlDeviceGetEnforcedPowerLimit, handle)
    facts["power_limit_w"] = limit / 1e3 if limit else None
    default = ask(library.nvmlDeviceGetPowerManagementDefaultLimit, handle)
    facts["power_default_w"] = default / 1e3 if default else None
    persistence = ask(library.nvmlDeviceGetPersistenceMode, handle)
    facts["persistence"] = None if persistence is None else bool(persistence)
    ecc, mig = ask(library.nvmlDeviceGetEccMode, handle), ask(library.nvmlDeviceGetMigMode, handle)
    facts["ecc"] = bool(ecc[0]) if ecc else None
    facts["mig"] = bool(mig[0]) if mig else None
    facts["other_processes"] = other_processes(library, handle)
    return facts


def other_processes(library, handle) -> list[str] | None:
    """Names of the programs, besides this one, that hold a context on the GPU."""
    with contextlib.suppress(library.NVMLError):
        running = library.nvmlDeviceGetComputeRunningProcesses(handle)
        return [_process_name(library, p.pid) for p in running if p.pid not in (os.getpid(), os.getppid())]
    return None


def _process_name(library, pid: int) -> str:
    with contextlib.suppress(library.NVMLError):
        return str(library.nvmlSystemGetProcessName(pid)).rsplit("/", 1)[-1]
    return f"process {pid}"


def git() -> dict:
    """The checkout's commit, and whether files differ from it. Nothing outside a checkout; where the files travel
    without their history, LOWLEVEL_COMMIT may say what they are."""
    if given := os.environ.get("LOWLEVEL_COMMIT"):
        return {"commit": given, "modified": None}
    if not paths.in_checkout():
        return {"commit": None, "modified": None}
    root = paths.kernel_root()

    def run(*words: str) -> str | None:
        try:
            done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, timeout=10)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    status = run("status", "--porcelain", "--untracked-files=no", "--", "lowlevel", "cu", "ptx", "mlir", "bench/suites")
    commit = run("rev-parse", "HEAD")
    return {"commit": commit, "modified": bool(status) if commit else None}


def _cublas(device) -> dict:
    try:
        from lowlevel.cublas.contenders import WORKSPACE_BYTES, Session

        return {**libraries.describe(Session.of(device).handle), "cublas_workspace_bytes": WORKSPACE_BYTES}
    except LowlevelError:
        return {"cublas": None}


def _version(ask) -> str | None:
    try:
        return ask()
    except LowlevelError:
        return None


def _package(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
