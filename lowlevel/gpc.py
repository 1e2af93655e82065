"""Which SMs share a GPC, found out by launching clusters: cu/support/gpc_probe.cu.

Neither the driver nor a register says it, and it differs from GPU to GPU of one name. A cluster runs on one GPC, so SMs
that were seen in one cluster share it, and so do those that share it with a third.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence

import numpy as np

from lowlevel.device.protocol import Buffer, Device, LaunchShape
from lowlevel.errors import DeviceError, UsageError

#: Blocks of a cluster, largest first; 16 is not portable. Twos see what is left over by the larger ones.
SIZES = (16, 8, 4, 2)
#: Bytes of shared memory that leave room for one block an SM.
_SHARED = 200 * 1024
#: SMs of eight clusters of two: what a kernel wants of a GPC.
_WHOLE = 16

_tables: weakref.WeakKeyDictionary[Device, Buffer] = weakref.WeakKeyDictionary()


def joined(clusters: Iterable[Sequence[int]]) -> list[frozenset[int]]:
    """SMs in groups: those seen in one cluster, and whatever shares a member with them. Largest first."""
    groups: list[frozenset[int]] = []
    for cluster in clusters:
        one = frozenset(cluster)
        for group in [g for g in groups if g & one]:
            groups.remove(group)
            one |= group
        groups.append(one)
    return sorted(groups, key=lambda group: (-len(group), min(group)))


def numbered(groups: Iterable[frozenset[int]], sms: int) -> np.ndarray:
    """uint8 of every SM: the number of its GPC. Groups that are too small for eight clusters of two, which some GPUs
    have, are put together until they are large enough; an SM that was not seen counts to the last number."""
    numbers, seen, number, room = np.zeros(sms, np.uint8), set(), 0, 0
    for group in groups:
        members = [sm for sm in group if sm < sms]
        numbers[members] = number
        seen.update(members)
        room += len(members)
        if room >= _WHOLE:
            number, room = number + 1, 0
    unseen = [sm for sm in range(sms) if sm not in seen]
    numbers[unseen] = number if room else max(0, number - 1)
    return numbers


def probe(device: Device) -> np.ndarray:
    """`numbered` of a GPU, in about a millisecond, compiling aside. Sizes that the GPU refuses are passed over."""
    from lowlevel.compare import support_function

    function, sms = support_function(device, "gpc_probe.cu", "gpc_probe"), device.limits.sms
    function.allow_large_clusters()
    stream, result, clusters = device.stream(), device.allocate(4 * sms), []
    try:
        for size in SIZES:
            blocks = sms // size * size
            shape = LaunchShape((blocks, 1, 1), (32, 1, 1), _SHARED, (size, 1, 1))
            try:
                device.bind(function, shape, [result]).launch(stream)
                stream.synchronize()
            except (DeviceError, UsageError):
                continue
            clusters += result.download(np.uint32, (blocks // size, size)).tolist()
    finally:
        result.free()
    return numbered(joined(clusters), sms)


def table(device: Device) -> Buffer:
    """A byte for every SM in device memory, found out once for a device. All zero where clusters cannot be launched:
    any table is right, and only this one of use."""
    if device not in _tables:
        buffer = device.allocate(device.limits.sms)
        buffer.fill(0)
        if {"clusters", "time"} <= getattr(device, "capabilities", frozenset()):
            buffer.upload(probe(device))
        device.synchronize()
        _tables[device] = buffer
    return _tables[device]
