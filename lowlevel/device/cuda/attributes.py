"""A GPU's attributes as `Limits`. On a MIG slice the driver reports the slice's own numbers."""

from __future__ import annotations

from lowlevel.device.cuda.errors import check
from lowlevel.hardware import Limits

#: Limits field -> (driver attribute, factor)
_ATTRIBUTES = {
    "sms": ("MULTIPROCESSOR_COUNT", 1),
    "threads_per_block": ("MAX_THREADS_PER_BLOCK", 1),
    "threads_per_sm": ("MAX_THREADS_PER_MULTIPROCESSOR", 1),
    "blocks_per_sm": ("MAX_BLOCKS_PER_MULTIPROCESSOR", 1),
    "registers_per_block": ("MAX_REGISTERS_PER_BLOCK", 1),
    "registers_per_sm": ("MAX_REGISTERS_PER_MULTIPROCESSOR", 1),
    "shared_per_block": ("MAX_SHARED_MEMORY_PER_BLOCK", 1),
    "shared_per_block_optin": ("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN", 1),
    "shared_per_sm": ("MAX_SHARED_MEMORY_PER_MULTIPROCESSOR", 1),
    "shared_reserved": ("RESERVED_SHARED_MEMORY_PER_BLOCK", 1),
    "l2_bytes": ("L2_CACHE_SIZE", 1),
    "sm_clock_mhz": ("CLOCK_RATE", 1e-3),
    "memory_clock_mhz": ("MEMORY_CLOCK_RATE", 1e-3),
    "memory_bus_bits": ("GLOBAL_MEMORY_BUS_WIDTH", 1),
}


def limits(driver, device) -> Limits:
    """All limits of a CUdevice."""

    def get(name: str) -> int:
        attribute = getattr(driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return check(driver.cuDeviceGetAttribute(attribute, device), f"reading attribute {name}")

    name = check(driver.cuDeviceGetName(256, device), "reading the GPU's name")
    capability = (get("COMPUTE_CAPABILITY_MAJOR"), get("COMPUTE_CAPABILITY_MINOR"))
    values = {field: int(get(attribute) * factor) for field, (attribute, factor) in _ATTRIBUTES.items()}
    return Limits(
        name=name.split(b"\0")[0].decode(),
        capability=capability,
        memory_bytes=check(driver.cuDeviceTotalMem(device), "reading the memory's size"),
        # 8 blocks is the portable cluster size; a kernel that wants 16 must ask for it.
        max_cluster=8 if capability >= (9, 0) else 1,
        cooperative=bool(get("COOPERATIVE_LAUNCH")),
        **values,
    )
