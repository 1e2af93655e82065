"""Files that are written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path


def write_whole(path: Path, data: bytes) -> None:
    """Writes the file aside and renames it: who reads sees all of it, or what was there before, and an OSError leaves
    that. Who may read it is as the umask has it."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        aside.write_bytes(data)
        os.replace(aside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            aside.unlink()
        raise
