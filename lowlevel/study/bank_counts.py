"""Accesses whose passes a profiler counted (tools/record_banks.py), and what a rule makes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lowlevel.study import banks
from lowlevel.study.bank_rules import RULE, Rule


@dataclass(frozen=True)
class Counted:
    """One access, and the passes that were counted."""

    name: str
    access: str
    addresses: tuple[int | None, ...]
    wavefronts: int


def read(recorded: Mapping) -> list[Counted]:
    """The patterns of a recorded file."""
    return [Counted(p["name"], p["access"], tuple(p["addresses"]), p["wavefronts"]) for p in recorded["patterns"]]


def misfits(counted: Sequence[Counted], rules: Mapping[str, Rule] = RULE) -> list[str]:
    """A line for each access of which the rules say other passes than were counted."""
    found = []
    for one in counted:
        said = banks.wavefronts(one.addresses, one.access, rules[one.access])
        if said != one.wavefronts:
            found.append(f"{one.name}: {one.wavefronts} counted, {said} by {rules[one.access].__name__}")
    return found
