"""The SM clock, read on the GPU itself right after a segment: cu/support/clock.cu."""

from __future__ import annotations

import numpy as np

from lowlevel.compare import support_function
from lowlevel.device.protocol import Device, LaunchShape, Stream


class ClockProbe:
    """Launch it on a stream, read it after the stream has been waited for."""

    def __init__(self, device: Device):
        self._result = device.allocate(16)
        function = support_function(device, "clock.cu", "clock_probe")
        self._packet = device.bind(function, LaunchShape((1, 1, 1), (32, 1, 1)), [self._result])

    def measure_mhz(self, stream: Stream) -> float:
        """SM cycles over nanoseconds of a kernel that spins for 30 us. Waits for it."""
        self._packet.launch(stream)
        stream.synchronize()
        cycles, nanoseconds = self._result.download(np.uint64, (2,))
        return 1e3 * float(cycles) / float(nanoseconds)
