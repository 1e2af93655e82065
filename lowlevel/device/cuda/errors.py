"""The driver's answers, turned into one line: its own name for the error, what was asked, and what to do."""

from __future__ import annotations

from lowlevel.errors import DeviceError, MissingError

#: What to do about an error, by the driver's name for it.
HINTS = {
    "CUDA_ERROR_INVALID_VALUE": "an argument is out of range; for a launch: block, shared memory or cluster size",
    "CUDA_ERROR_OUT_OF_MEMORY": "free memory, use a smaller shape, or end the other processes on the GPU",
    "CUDA_ERROR_INVALID_IMAGE": "the binary is empty or corrupt: clear the kernel cache and build again",
    "CUDA_ERROR_INVALID_CONTEXT": "the context is gone: start a new process",
    "CUDA_ERROR_NO_BINARY_FOR_GPU": "the binary is for another architecture: build for this GPU's",
    "CUDA_ERROR_INVALID_PTX": "the PTX does not assemble: see the log",
    "CUDA_ERROR_UNSUPPORTED_PTX_VERSION": "the PTX is newer than the driver: load the cubin, or update the driver",
    "CUDA_ERROR_NOT_FOUND": "the module has no such kernel",
    "CUDA_ERROR_ILLEGAL_ADDRESS": "a kernel read or wrote outside its buffers: run it under compute-sanitizer",
    "CUDA_ERROR_MISALIGNED_ADDRESS": "a vector access is not aligned to its size: check base pointers and strides",
    "CUDA_ERROR_ILLEGAL_INSTRUCTION": "the kernel ran an instruction that is not valid here: run compute-sanitizer",
    "CUDA_ERROR_HARDWARE_STACK_ERROR": "a barrier or call stack is corrupt: run compute-sanitizer",
    "CUDA_ERROR_INVALID_ADDRESS_SPACE": "a shared or global instruction was given the other kind of address",
    "CUDA_ERROR_INVALID_PC": "the program counter left the kernel: the module or its memory is corrupt",
    "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES": "registers x threads or shared memory is over the limit: use fewer threads",
    "CUDA_ERROR_LAUNCH_TIMEOUT": "the display's watchdog ended the kernel: use a GPU without a display",
    "CUDA_ERROR_LAUNCH_FAILED": "the kernel failed (an assert, a trap, a grid barrier without cooperative launch)",
    "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE": "the grid does not fit on the device at once: use fewer blocks",
    "CUDA_ERROR_INVALID_CLUSTER_SIZE": "the grid must be a multiple of the cluster, and the cluster fit in a GPC",
    "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH": "libcuda and the kernel driver differ: reboot, or reinstall the driver",
    "CUDA_ERROR_NO_DEVICE": "no GPU is visible: check nvidia-smi and CUDA_VISIBLE_DEVICES",
    "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE": "forward compatibility needs a data-centre GPU: update the driver",
    "CUDA_ERROR_STUB_LIBRARY": "libcuda is the toolkit's stub: put the driver's folder first on the library path",
}

#: Errors after which the context answers every call with the same error.
STICKY = frozenset(
    {
        "CUDA_ERROR_ILLEGAL_ADDRESS",
        "CUDA_ERROR_MISALIGNED_ADDRESS",
        "CUDA_ERROR_ILLEGAL_INSTRUCTION",
        "CUDA_ERROR_HARDWARE_STACK_ERROR",
        "CUDA_ERROR_INVALID_ADDRESS_SPACE",
        "CUDA_ERROR_INVALID_PC",
        "CUDA_ERROR_LAUNCH_FAILED",
        "CUDA_ERROR_LAUNCH_TIMEOUT",
        "CUDA_ERROR_ASSERT",
    }
)


class NoDriverError(MissingError):
    """There is no CUDA driver, or no GPU: what needs none goes on without. A broken driver is a MissingError."""


def is_sticky(error: DeviceError) -> bool:
    """Whether the context is lost, so that only a new process can go on."""
    return error.name in STICKY


def describe(name: str, doing: str) -> str:
    """`CUDA_ERROR_X while <doing>: <what to do>`."""
    text = f"{name} while {doing}"
    if hint := HINTS.get(name):
        text += f": {hint}"
    if name in STICKY:
        text += " (this process's CUDA context is lost)"
    return text


def check(result: tuple, doing: str = "calling the driver"):
    """The values behind a driver call's status; raises DeviceError if that is not success."""
    status = result[0]
    if int(status) != 0:
        raise DeviceError(describe(status.name, doing), status.name, int(status))
    if len(result) == 1:
        return None
    return result[1] if len(result) == 2 else result[1:]
