"""Finding the driver: the bindings, libcuda, and which of them is missing or broken."""

from __future__ import annotations

import ctypes
import functools

from lowlevel.device.cuda.errors import NoDriverError, check
from lowlevel.errors import DeviceError, MissingError

#: Driver release -> the newest PTX ISA it compiles. From 'Release Notes' of the PTX ISA manual.
PTX_ISA = {
    (11, 8): (7, 8),
    (12, 0): (8, 0),
    (12, 1): (8, 1),
    (12, 2): (8, 2),
    (12, 3): (8, 3),
    (12, 4): (8, 4),
    (12, 5): (8, 5),
    (12, 6): (8, 5),
    (12, 7): (8, 6),
    (12, 8): (8, 7),
    (12, 9): (8, 8),
    (13, 0): (9, 0),
    (13, 1): (9, 1),
    (13, 2): (9, 2),
}


@functools.cache
def bindings():
    """cuda.bindings.driver, initialised. NoDriverError without a driver or GPU, MissingError for a broken one."""
    try:
        from cuda.bindings import driver
    except ImportError:
        text = "cuda.bindings is missing: pip install 'cuda-python==13.0.*' (CUDA 12: '12.9.*')"
        raise (MissingError if _loads("libcuda.so.1") else NoDriverError)(text) from None
    try:
        (status,) = driver.cuInit(0)
    except RuntimeError as error:
        raise _why_not(str(error).splitlines()[0]) from None
    if status.name == "CUDA_ERROR_NO_DEVICE":
        raise NoDriverError("a CUDA driver is there, but no GPU is visible: check nvidia-smi and CUDA_VISIBLE_DEVICES")
    try:
        check((status,), "initialising the CUDA driver")
    except DeviceError as error:
        raise MissingError(str(error)) from None
    return driver


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def _why_not(text: str) -> MissingError:
    """No libcuda at all is an ordinary machine without a GPU; one that does not load is broken."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        if "No such file" in str(error):
            return NoDriverError("no CUDA driver (libcuda.so.1 not found)")
        text = str(error)
    return MissingError(f"the CUDA driver is broken: {text}: reinstall the NVIDIA driver")


def driver_version() -> tuple[int, int] | None:
    """(13, 0) for a driver of CUDA 13.0; None where there is no driver."""
    try:
        driver = bindings()
    except NoDriverError:
        return None
    number = check(driver.cuDriverGetVersion(), "asking the driver's version")
    return number // 1000, number % 1000 // 10


def newest_ptx(version: tuple[int, int]) -> tuple[int, int]:
    """The newest PTX ISA that a driver of this CUDA release compiles; a newer release takes at least the newest."""
    known = [release for release in PTX_ISA if release <= version]
    return PTX_ISA[max(known)] if known else (7, 0)


def probe() -> str | None:
    """None when a GPU can be used, else one line why not. Raises MissingError for a driver that is broken."""
    try:
        bindings()
    except NoDriverError as error:
        return str(error)
    return None


def device_count() -> int:
    return check(bindings().cuDeviceGetCount(), "counting GPUs") if probe() is None else 0
