"""The GPUs we know: limits, rates, occupancy. Nothing here needs a driver."""

from __future__ import annotations

from dataclasses import dataclass


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
