"""Streams as other libraries hand them over."""

from __future__ import annotations

import numbers

from lowlevel.errors import UsageError

#: The driver's names for its two default streams; 0 may mean either, and is taken as the legacy one.
LEGACY, PER_THREAD = 1, 2


def handle_of(stream: object) -> int:
    """The handle of a stream: an int, an object with `__cuda_stream__`, `cuda_stream` (PyTorch), `ptr` (CuPy) or
    `handle` (ours, Numba's). None is the legacy default stream, on which those libraries work unless told otherwise."""
    if stream is None:
        return LEGACY
    if isinstance(stream, bool) or (handle := _handle(stream)) is None or handle < 0:
        raise UsageError(
            f"stream is a {type(stream).__name__}: give an int, or an object with __cuda_stream__, cuda_stream or ptr"
        )
    return handle or LEGACY


def _handle(stream: object) -> int | None:
    if isinstance(stream, numbers.Integral):
        return int(stream)
    if hasattr(stream, "__cuda_stream__"):
        # CUDA's protocol: (version, handle), from a method now and from a property in its first draft.
        told = stream.__cuda_stream__
        return int((told() if callable(told) else told)[1])
    for name in ("cuda_stream", "ptr", "handle"):
        found = getattr(stream, name, None)
        found = getattr(found, "value", found)
        if isinstance(found, int):
            return found
    return None
