"""Figures of tunings that are under way: an interrupted `lowlevel bench --tune` goes on from them."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from lowlevel.files import write_whole
from lowlevel.tuned import Figure


class Journal:
    """What was found out so far, by problem. `fingerprint` says of what: the kernel's source, the compiler, how it was
    timed. Figures of another fingerprint are forgotten.

    A file that cannot be read is named on standard error, and what it held is measured again.
    """

    def __init__(self, path: Path):
        self.path = path
        self._entries: dict[str, dict] = {}
        if not path.exists():
            return
        try:
            entries = json.loads(path.read_text())
            self._entries = {
                key: {"fingerprint": entry["fingerprint"], "figures": [Figure(**figure) for figure in entry["figures"]]}
                for key, entry in entries.items()
            }
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            text = " ".join(str(error).split())
            print(f"lowlevel: {path} is damaged ({text}): tuning starts anew", file=sys.stderr)

    def figures(self, key: str, fingerprint: str) -> list[Figure]:
        """What is known of a problem."""
        entry = self._entries.get(key)
        return list(entry["figures"]) if entry and entry["fingerprint"] == fingerprint else []

    def keep(self, key: str, fingerprint: str, figures: Sequence[Figure]) -> None:
        """These are what is known of a problem from now on. Where the folder cannot be written, tuning goes on."""
        self._entries[key] = {"fingerprint": fingerprint, "figures": list(figures)}
        self._save()

    def finish(self, keys: Sequence[str]) -> None:
        """Forgets problems whose choices are stored; an empty journal has no file."""
        for key in keys:
            self._entries.pop(key, None)
        self._save()

    def _save(self) -> None:
        with contextlib.suppress(OSError):
            if not self._entries:
                self.path.unlink(missing_ok=True)
                return
            plain = {k: {**e, "figures": [asdict(f) for f in e["figures"]]} for k, e in self._entries.items()}
            write_whole(self.path, json.dumps(plain, allow_nan=False).encode())
