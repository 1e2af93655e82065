"""What this machine can do: each part a verdict and, where something is wrong, the one command that mends it."""

from __future__ import annotations

import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from lowlevel import paths
from lowlevel.errors import LowlevelError
from lowlevel.toolchain.binary import Request

#: ok: works. absent: not there, and not needed for what works without. warn: works, with a drawback. bad: broken.
VERDICTS = ("ok", "absent", "warn", "bad")

NCU_ABSENT, NCU_MEND = "Nsight Compute is not on the PATH", "install NVIDIA Nsight Compute"
COUNTERS_KEPT = "the driver keeps hardware counters for administrators"
COUNTERS_MEND = "options nvidia NVreg_RestrictProfilingToAdminUsers=0 in /etc/modprobe.d"


@dataclass(frozen=True)
class Finding:
    part: str
    verdict: str
    said: str
    mend: str = ""


def examine() -> list[Finding]:
    """Every check, in order. A check that fails unforeseen is itself a finding."""
    return [_guarded(check) for check in CHECKS]


def _guarded(check: Callable[[], Finding]) -> Finding:
    part = check.__name__.removeprefix("check_").replace("_", " ")
    try:
        return check()
    except LowlevelError as error:
        said, _, mend = str(error).rpartition(": ")
        return Finding(part, "bad", said or str(error), mend if said else "")
    except Exception as error:
        return Finding(part, "bad", f"{type(error).__name__}: {error}", "run with --debug and report it")


def check_python() -> Finding:
    return Finding("python", "ok", f"Python {platform.python_version()} on {sys.platform}")


def check_bindings() -> Finding:
    """cuda.bindings, and whether its major version fits the driver."""
    try:
        version = metadata.version("cuda-bindings")
    except metadata.PackageNotFoundError:
        return Finding(
            "bindings", "bad", "cuda-bindings is not installed", "pip install 'cuda-python==13.0.*' (CUDA 12: '12.9.*')"
        )
    from lowlevel.device.cuda.driver import driver_version

    release = driver_version()
    if release and int(version.split(".")[0]) > release[0]:
        said = f"cuda-bindings {version} is newer than the driver's CUDA {release[0]}.{release[1]}"
        wheels = "'cuda-python==12.9.*' 'nvidia-cuda-nvrtc-cu12==12.8.*' 'nvidia-nvjitlink-cu12==12.8.*'"
        return Finding("bindings", "bad", said, f"pip install {wheels}")
    return Finding("bindings", "ok", f"cuda-bindings {version}")


def check_driver() -> Finding:
    from lowlevel.device.cuda.driver import driver_version, newest_ptx, probe

    if reason := probe():
        return Finding("driver", "absent", reason, "install an NVIDIA driver to run and time kernels")
    release = driver_version()
    ptx = newest_ptx(release)
    return Finding("driver", "ok", f"CUDA {release[0]}.{release[1]}, compiles PTX ISA up to {ptx[0]}.{ptx[1]}")


def check_gpu() -> Finding:
    from lowlevel.device.cuda.driver import device_count, probe

    if reason := probe():
        return Finding("gpu", "absent", reason)
    from lowlevel.device.cuda.device import open_device

    names = []
    for ordinal in range(device_count()):
        device = open_device(ordinal)
        names.append(f"{ordinal}: {device.name} ({device.limits.arch}, {device.limits.sms} SMs)")
        device.close()
    return Finding("gpu", "ok", "; ".join(names))


def check_nvrtc() -> Finding:
    """Version, and a compilation: the library may load and still not find its builtins."""
    from lowlevel.toolchain import nvrtc

    name = nvrtc.compiler_name()
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "empty.cu"
        source.write_text('extern "C" __global__ void empty() {}\n')
        nvrtc.compile_cuda(Request("cuda", source, "sm_80", ("empty",)))
    return Finding("nvrtc", "ok", name)


def check_nvjitlink() -> Finding:
    from lowlevel.toolchain import nvjitlink

    return Finding("nvjitlink", "ok", nvjitlink.compiler_name())


def check_ptx_isa() -> Finding:
    """Whether the driver compiles the PTX that NVRTC writes; where not, cubins still load."""
    from lowlevel.device.cuda.driver import PTX_ISA, driver_version, newest_ptx
    from lowlevel.toolchain import nvrtc

    release, toolkit = driver_version(), nvrtc.version()
    writes = PTX_ISA.get(toolkit, newest_ptx(toolkit))
    if release is None:
        return Finding("ptx isa", "absent", f"NVRTC writes {writes[0]}.{writes[1]}; no driver to compare it with")
    takes = newest_ptx(release)
    said = f"NVRTC writes {writes[0]}.{writes[1]}, the driver compiles up to {takes[0]}.{takes[1]}"
    if writes > takes:
        return Finding(
            "ptx isa", "warn", f"{said}; cubins load all the same", "pip install 'nvidia-cuda-nvrtc==13.0.*'"
        )
    return Finding("ptx isa", "ok", said)


def check_cublas() -> Finding:
    from lowlevel.cublas import libraries
    from lowlevel.errors import MissingError

    try:
        found = libraries.load()
    except MissingError as error:
        return Finding(
            "cublas", "absent", str(error).split(" (")[0], "pip install nvidia-cublas (CUDA 12: nvidia-cublas-cu12)"
        )
    version = libraries.version_text(found.lt.cublasLtGetVersion())
    return Finding("cublas", "ok", f"cuBLASLt {version}, found via {found.found_via}")


def check_headers() -> Finding:
    """CUDA's own headers. The kernels here need none."""
    from lowlevel.toolchain.headers import cuda_include_dirs

    found = cuda_include_dirs()
    if not found:
        said = "no CUDA headers; the kernels here need none, your own may"
        return Finding("headers", "absent", said, "pip install nvidia-cuda-runtime nvidia-cuda-cccl")
    return Finding("headers", "ok", f"{len(found)} folder(s)")


def check_nvdisasm() -> Finding:
    from lowlevel.toolchain import sass

    if sass.disassembler() is None:
        return Finding("nvdisasm", "absent", "no disassembler: SASS is not shown", "pip install nvidia-cuda-nvdisasm")
    return Finding("nvdisasm", "ok", "found")


def check_ncu() -> Finding:
    """Nsight Compute, and whether this user may read the hardware counters."""
    if not ncu():
        return Finding("ncu", "absent", NCU_ABSENT, NCU_MEND)
    if restricted() and os.geteuid() != 0:
        return Finding("ncu", "warn", COUNTERS_KEPT, COUNTERS_MEND)
    return Finding("ncu", "ok", "found, counters readable")


def ncu() -> str | None:
    """The path of Nsight Compute's command, on the PATH or where a toolkit puts it."""
    return shutil.which("ncu") or shutil.which("ncu", path="/usr/local/cuda/bin")


def restricted(parameters: Path = Path("/proc/driver/nvidia/params")) -> bool:
    """Whether the kernel module keeps the counters for administrators; unknown counts as no."""
    try:
        return "RmProfilingAdminOnly: 1" in parameters.read_text()
    except OSError:
        return False


def check_sanitizer() -> Finding:
    from lowlevel.commands.sanitize import sanitizer
    from lowlevel.errors import MissingError

    try:
        sanitizer()
    except MissingError:
        return Finding("compute-sanitizer", "absent", "not on the PATH", "install a CUDA toolkit")
    return Finding("compute-sanitizer", "ok", "found")


def check_nvml() -> Finding:
    """NVML: clocks, power, and who else uses the GPU."""
    try:
        import pynvml
    except ImportError:
        return Finding("nvml", "absent", "clocks and power are not recorded", "pip install nvidia-ml-py")
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return Finding("nvml", "absent", f"{error}: clocks and power are not recorded")
    return Finding("nvml", "ok", f"driver {pynvml.nvmlSystemGetDriverVersion()}")


def check_mode() -> Finding:
    """ECC, MIG and other processes: what moves a measurement."""
    from lowlevel.device.cuda.driver import probe

    if probe():
        return Finding("mode", "absent", "no GPU")
    from lowlevel.device.cuda.device import open_device
    from lowlevel.environment import board

    device = open_device()
    facts = board(device.uuid)
    device.close()
    said = f"ECC {facts['ecc']}, MIG {facts['mig']}, power limit {facts['power_limit_w']} W"
    said += f" (default {facts['power_default_w']} W), persistence mode {facts['persistence']}"
    if facts["other_processes"]:
        return Finding("mode", "warn", f"{said}; other processes: {', '.join(facts['other_processes'])}", "end them")
    return Finding("mode", "ok", said)


def check_cache() -> Finding:
    folder = paths.cache_dir()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        return Finding("cache", "warn", f"{folder}: {error.strerror}: nothing is kept", "set LOWLEVEL_CACHE")
    return Finding("cache", "ok", f"{folder} is writable")


CHECKS: tuple[Callable[[], Finding], ...] = (
    check_python,
    check_bindings,
    check_driver,
    check_gpu,
    check_nvrtc,
    check_nvjitlink,
    check_ptx_isa,
    check_cublas,
    check_headers,
    check_nvdisasm,
    check_ncu,
    check_sanitizer,
    check_nvml,
    check_mode,
    check_cache,
)


def broken(findings: list[Finding]) -> Iterator[Finding]:
    return (f for f in findings if f.verdict == "bad")
