"""What NVML says of the GPU meanwhile: clock, power, and why it is held back. Without NVML, nothing."""

from __future__ import annotations

import contextlib
import threading
import time
from dataclasses import dataclass

#: Bits of nvmlDeviceGetCurrentClocksEventReasons; idle and application settings are no throttling.
REASONS = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "thermal (software)",
    0x40: "thermal (hardware)",
    0x80: "power brake",
}


@dataclass(frozen=True)
class Sample:
    at: float
    clock_mhz: float
    power_w: float
    reasons: int


def reason_text(reasons: int) -> str:
    """`power cap, thermal (software)`; empty when nothing holds the GPU back."""
    return ", ".join(name for bit, name in REASONS.items() if reasons & bit)


def handle(uuid: str):
    """(pynvml, handle of the GPU with that UUID), or None where NVML or the GPU is not to be had."""
    with contextlib.suppress(Exception):
        import pynvml

        pynvml.nvmlInit()
        return pynvml, pynvml.nvmlDeviceGetHandleByUUID(uuid)
    return None


class Monitor:
    """Samples in the background, every 20 ms, between `with` and its end."""

    def __init__(self, uuid: str, period_s: float = 0.02):
        self._found = handle(uuid)
        self._period = period_s
        self._samples: list[Sample] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Monitor:
        if self._found:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _watch(self) -> None:
        nvml, device = self._found
        while not self._stop.wait(self._period):
            with contextlib.suppress(nvml.NVMLError):
                sample = Sample(
                    time.perf_counter(),
                    float(nvml.nvmlDeviceGetClockInfo(device, nvml.NVML_CLOCK_SM)),
                    nvml.nvmlDeviceGetPowerUsage(device) / 1e3,
                    nvml.nvmlDeviceGetCurrentClocksThrottleReasons(device),
                )
                self._samples.append(sample)

    def between(self, start: float, end: float) -> list[Sample]:
        return [s for s in list(self._samples) if start <= s.at <= end]
