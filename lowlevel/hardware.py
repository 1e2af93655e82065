"""The GPUs we know: limits, rates, occupancy. Nothing here needs a driver."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from lowlevel.errors import UsageError


@dataclass(frozen=True)
class Limits:
    """What a device allows, as its attributes say (or, offline, as `GPUS` says). Sizes in bytes, clocks in MHz."""

    name: str
    capability: tuple[int, int]
    sms: int
    threads_per_block: int
    threads_per_sm: int
    blocks_per_sm: int
    registers_per_block: int
    registers_per_sm: int
    shared_per_block: int
    shared_per_block_optin: int
    shared_per_sm: int
    shared_reserved: int
    l2_bytes: int
    memory_bytes: int
    sm_clock_mhz: int
    memory_clock_mhz: int
    memory_bus_bits: int
    max_cluster: int
    cooperative: bool

    @property
    def arch(self) -> str:
        """`sm_90`: the architecture without a feature suffix."""
        return f"sm_{self.capability[0]}{self.capability[1]}"


#: Dense FLOP per clock and SM by capability and unit, a multiply-add counted as two. From the tables of the
#: architecture whitepapers and the CUDA C++ programming guide's 'Arithmetic Instructions'.
FLOP_PER_CLOCK: dict[tuple[int, int], dict[str, float]] = {
    (7, 5): {"fp32": 128, "fp16": 1024, "int8": 2048},
    (8, 0): {"fp32": 128, "tf32": 1024, "fp16": 2048, "bf16": 2048, "int8": 4096},
    (8, 6): {"fp32": 256, "tf32": 512, "fp16": 1024, "bf16": 1024, "int8": 2048},
    (8, 9): {"fp32": 256, "tf32": 512, "fp16": 1024, "bf16": 1024, "fp8": 2048, "int8": 2048},
    (9, 0): {"fp32": 256, "tf32": 2048, "fp16": 4096, "bf16": 4096, "fp8": 8192, "int8": 8192},
    (10, 0): {"fp32": 256, "tf32": 4096, "fp16": 8192, "bf16": 8192, "fp8": 16384, "int8": 16384},
}


@dataclass(frozen=True)
class Occupancy:
    """How many blocks of a kernel an SM holds, and what it ran out of first."""

    blocks_per_sm: int
    warps: int
    fraction: float
    limited_by: str


def _gpu(
    name, capability, sms, memory_gb, l2_mib, clock, memory_clock, bus, shared_sm, optin, threads_sm, blocks_sm, cluster
) -> Limits:
    return Limits(
        name=name,
        capability=capability,
        sms=sms,
        threads_per_block=1024,
        threads_per_sm=threads_sm,
        blocks_per_sm=blocks_sm,
        registers_per_block=65536,
        registers_per_sm=65536,
        shared_per_block=48 * 1024,
        shared_per_block_optin=optin * 1024,
        shared_per_sm=shared_sm * 1024,
        shared_reserved=1024 if capability >= (8, 0) else 0,
        l2_bytes=l2_mib << 20,
        memory_bytes=memory_gb << 30,
        sm_clock_mhz=clock,
        memory_clock_mhz=memory_clock,
        memory_bus_bits=bus,
        max_cluster=cluster,
        cooperative=True,
    )


#: name -> limits, for tables made without the device. Clocks are the maximum SM clock and the memory clock whose
#: double rate times the bus is the data sheet's bandwidth. Of several boards of a chip, the usual one comes first.
#: GeForce boards are left out: they sum at half the tensor rate of the capability.
GPUS: dict[str, Limits] = {
    limits.name: limits
    for limits in (
        _gpu("T4", (7, 5), 40, 16, 4, 1590, 5001, 256, 64, 64, 1024, 16, 1),
        _gpu("A100 SXM 80GB", (8, 0), 108, 80, 40, 1410, 1593, 5120, 164, 163, 2048, 32, 1),
        _gpu("A100 SXM 40GB", (8, 0), 108, 40, 40, 1410, 1215, 5120, 164, 163, 2048, 32, 1),
        _gpu("A100 PCIe 80GB", (8, 0), 108, 80, 40, 1410, 1512, 5120, 164, 163, 2048, 32, 1),
        _gpu("A100 PCIe 40GB", (8, 0), 108, 40, 40, 1410, 1215, 5120, 164, 163, 2048, 32, 1),
        _gpu("A10", (8, 6), 72, 24, 6, 1695, 6251, 384, 100, 99, 1536, 16, 1),
        _gpu("L4", (8, 9), 58, 24, 48, 2040, 6251, 192, 100, 99, 1536, 24, 1),
        _gpu("L40S", (8, 9), 142, 48, 96, 2520, 9001, 384, 100, 99, 1536, 24, 1),
        _gpu("H100 SXM", (9, 0), 132, 80, 50, 1980, 2619, 5120, 228, 227, 2048, 32, 8),
        _gpu("H100 PCIe", (9, 0), 114, 80, 50, 1755, 1593, 5120, 228, 227, 2048, 32, 8),
        _gpu("H100 NVL", (9, 0), 132, 94, 50, 1785, 2619, 6016, 228, 227, 2048, 32, 8),
        _gpu("H200", (9, 0), 132, 141, 60, 1980, 3201, 6016, 228, 227, 2048, 32, 8),
        _gpu("H200 NVL", (9, 0), 132, 141, 60, 1785, 3201, 6016, 228, 227, 2048, 32, 8),
        _gpu("GH200 96GB", (9, 0), 132, 96, 60, 1980, 2619, 6144, 228, 227, 2048, 32, 8),
        _gpu("B200", (10, 0), 148, 180, 126, 1965, 3996, 8192, 228, 227, 2048, 32, 8),
    )
}


def find(name: str) -> Limits:
    """A GPU by its name, else by words that its name has, the first that has them all. UsageError with near names."""
    wanted = name.lower().replace("nvidia", "").replace("-", " ").split()
    known = {gpu: gpu.lower().split() for gpu in GPUS}
    for gpu, words in known.items():
        if words == wanted:
            return GPUS[gpu]
    for gpu, words in known.items():
        if wanted and set(wanted) <= set(words):
            return GPUS[gpu]
    near = difflib.get_close_matches(name.lower(), [gpu.lower() for gpu in GPUS], n=3, cutoff=0.5)
    names = [gpu for gpu in GPUS if gpu.lower() in near] or list(GPUS)
    raise UsageError(f"no GPU '{name}' in the table; there {'is' if len(names) == 1 else 'are'} {', '.join(names)}")


def typical(arch: str) -> Limits:
    """The GPU that a static table of `arch` assumes: A100 for sm_80, H200 for sm_90, B200 for sm_100 ..."""
    preferred = {(8, 0): "A100 SXM 80GB", (9, 0): "H200", (10, 0): "B200", (10, 3): "B200", (12, 0): "L40S"}
    number = arch.removeprefix("sm_").rstrip("a")
    capability = (int(number[:-1]), int(number[-1]))
    if capability in preferred:
        return GPUS[preferred[capability]]
    return next((g for g in GPUS.values() if g.capability == capability), GPUS["A10"])


def flop_per_clock(capability: tuple[int, int], unit: str) -> float | None:
    """Dense FLOP per clock and SM, or None when unknown or when the unit does not exist there."""
    return FLOP_PER_CLOCK.get(capability, {}).get(unit)


def peak(limits: Limits, unit: str) -> float | None:
    """FLOP/s of the whole device at its maximum SM clock."""
    rate = flop_per_clock(limits.capability, unit)
    return None if rate is None else limits.sms * rate * limits.sm_clock_mhz * 1e6


def bandwidth(limits: Limits) -> float:
    """Bytes/s of device memory: two transfers a memory clock on every bit of the bus."""
    return limits.memory_clock_mhz * 1e6 * 2 * limits.memory_bus_bits / 8


def occupancy(limits: Limits, threads: int, registers: int, shared: int) -> Occupancy:
    """Blocks an SM holds, by the allocation rules of the CUDA occupancy calculator.

    threads: of a block. registers: of a thread, allocated per warp in units of 256. shared: bytes of a block, static
    and dynamic, allocated in units of 128 bytes, with the system's own 1 KiB a block from sm_80 on.
    """
    warps = -(-threads // 32)
    per_warp = -(-registers * 32 // 256) * 256
    # An SM's four partitions hold a quarter of the registers each, and a warp's lie in one of them.
    warps_by_registers = 4 * (limits.registers_per_sm // 4 // per_warp) if registers else limits.threads_per_sm // 32
    per_block = -(-(shared + limits.shared_reserved) // 128) * 128
    counts = {
        "threads": limits.threads_per_sm // 32 // warps if threads <= limits.threads_per_block else 0,
        "blocks": limits.blocks_per_sm,
        "registers": warps_by_registers // warps,
        "shared memory": limits.shared_per_sm // per_block if per_block else limits.blocks_per_sm,
    }
    limited_by = min(counts, key=counts.__getitem__)
    blocks = counts[limited_by]
    return Occupancy(blocks, blocks * warps, blocks * warps / (limits.threads_per_sm // 32), limited_by)
