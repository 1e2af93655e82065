"""What a warp's access of shared memory costs: which banks its addresses meet, and how many passes that takes.

Shared memory has 32 banks, 4 bytes wide: word w lies in bank w % 32. In one pass (ncu: wavefront) a bank delivers one
word, to every lane that wants it. An access of more than 4 bytes a lane is served a group of lanes after the other; how
the hardware groups lanes is `bank_rules.py`, fitted on counted accesses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from lowlevel.errors import UsageError
from lowlevel.study import bank_rules
from lowlevel.study.bank_rules import BANKS, LANES, Addresses, Rule


@dataclass(frozen=True)
class Access:
    """An instruction on shared memory: bytes a lane, and how many lanes give an address."""

    name: str
    about: str
    width: int
    lanes: int = LANES


ACCESSES: dict[str, Access] = {
    access.name: access
    for access in (
        Access("ld.4", "ld.shared of 4 bytes (LDS)", 4),
        Access("ld.8", "ld.shared of 8 bytes (LDS.64)", 8),
        Access("ld.16", "ld.shared of 16 bytes (LDS.128)", 16),
        Access("st.4", "st.shared of 4 bytes (STS)", 4),
        Access("st.8", "st.shared of 8 bytes (STS.64)", 8),
        Access("st.16", "st.shared of 16 bytes (STS.128)", 16),
        Access("ldmatrix.x1", "ldmatrix.x1: lanes 0 to 7 name rows of 16 bytes", 16, 8),
        Access("ldmatrix.x2", "ldmatrix.x2: lanes 0 to 15 name rows of 16 bytes", 16, 16),
        Access("ldmatrix.x4", "ldmatrix.x4: 32 lanes name rows of 16 bytes", 16),
    )
}


@dataclass(frozen=True)
class Phase:
    """Lanes that are served together. words: bank -> word -> the lanes that want it."""

    lanes: tuple[int, ...]
    words: Mapping[int, Mapping[int, tuple[int, ...]]]

    @property
    def wavefronts(self) -> int:
        """Passes: as many as one bank has different words to deliver."""
        return max(map(len, self.words.values()), default=0)

    @property
    def collisions(self) -> dict[int, Mapping[int, tuple[int, ...]]]:
        """The banks that have more than one word to deliver."""
        return {bank: words for bank, words in sorted(self.words.items()) if len(words) > 1}


def phases(addresses: Addresses, access: str, rule: Rule | None = None) -> list[Phase]:
    """How one access is served. addresses: a byte address a lane, None for a lane that takes no part.

    Raises UsageError for an access that does not exist, or an address that the instruction does not take.
    """
    kind = find(access)
    _check(addresses, kind)
    given = [*addresses[: kind.lanes], *[None] * (LANES - kind.lanes)]
    groups = (rule or bank_rules.RULE[access])(given, kind.width)
    return [_phase(lanes, given, kind.width) for lanes in groups if lanes]


def wavefronts(addresses: Addresses, access: str, rule: Rule | None = None) -> int:
    """Passes of shared memory that one access takes, as ncu counts them."""
    return sum(phase.wavefronts for phase in phases(addresses, access, rule))


def ideal(found: Sequence[Phase]) -> int:
    """Passes that the same phases would take if their words lay evenly in the banks."""
    return sum(-(-sum(map(len, phase.words.values())) // BANKS) for phase in found)


def find(access: str) -> Access:
    if access not in ACCESSES:
        raise UsageError(f"no access '{access}'; there are {', '.join(ACCESSES)}")
    return ACCESSES[access]


def _check(addresses: Addresses, kind: Access) -> None:
    if len(addresses) < kind.lanes:
        raise UsageError(f"{kind.name} takes {kind.lanes} addresses, {len(addresses)} given")
    for lane, address in enumerate(addresses[: kind.lanes]):
        if address is not None and (address < 0 or address % kind.width):
            raise UsageError(f"lane {lane}: byte {address} is no multiple of {kind.width}, which {kind.name} needs")


def _phase(lanes: Sequence[int], addresses: Addresses, width: int) -> Phase:
    found: dict[int, dict[int, tuple[int, ...]]] = {}
    for lane in lanes:
        for word in bank_rules.words(addresses[lane], width):
            at = found.setdefault(word % BANKS, {})
            at[word] = (*at.get(word, ()), lane)
    return Phase(tuple(lanes), found)


def told(phase: Phase, most: int = 4) -> Iterator[str]:
    """The banks of a phase that collide, in words: `banks 0-3: 2 words, for lanes 0 | 4`. Banks with the same lanes
    share a line."""
    alike: dict[tuple, list[int]] = {}
    for bank, words in phase.collisions.items():
        alike.setdefault(tuple(words.values()), []).append(bank)
    for lanes, banks in list(alike.items())[:most]:
        wanted = " | ".join(map(spans, lanes[:8])) + (" | ..." if len(lanes) > 8 else "")
        yield f"bank{'s' if len(banks) > 1 else ''} {spans(banks)}: {len(lanes)} words, for lanes {wanted}"
    if len(alike) > most:
        yield f"and {len(alike) - most} more such groups of banks"


def spans(numbers: Sequence[int]) -> str:
    """`0-3, 8`."""
    runs: list[list[int]] = []
    for n in numbers:
        if runs and n == runs[-1][-1] + 1:
            runs[-1].append(n)
        else:
            runs.append([n])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
