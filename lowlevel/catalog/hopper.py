"""What Hopper's kernels promise of registers and barriers, as sums that the host can check."""

from __future__ import annotations

from lowlevel.catalog.entry import Config

#: Registers of an SM, and how many at least a thread gets more or fewer of.
_REGISTERS, _UNIT = 65536, 8
_WARPGROUP, _WARPS = 128, 4


def registers_at_start(threads: int) -> int:
    """Registers of each thread when a block starts that is alone on its SM: __launch_bounds__(threads, 1)."""
    return min(256, _REGISTERS // threads // _UNIT * _UNIT)


def broken_register_sum(threads: int, kept: int, taken: int) -> str | None:
    """What is wrong, in a line, where one warpgroup keeps `kept` registers a thread and the others take `taken`.

    Who takes waits until there are enough: if there never are, for ever.
    """
    for name, number in (("kept", kept), ("taken", taken)):
        if number % _UNIT or not 24 <= number <= 256:
            return f"setmaxnreg: {kept=} {taken=}: {name} is not a multiple of {_UNIT} from 24 to 256"
    groups, start = threads // _WARPGROUP, registers_at_start(threads)
    if kept > start or taken < start:
        return f"setmaxnreg: {kept=} {taken=}: a block of {threads} threads starts with {start}"
    asked = kept + (groups - 1) * taken
    if asked > groups * start:
        return (
            f"setmaxnreg: {kept} + {groups - 1} x {taken} = {asked} is more than {groups} x {start} = {groups * start}"
        )
    return None


def arrivals_that_empty(config: Config) -> int:
    """Arrivals that end a phase of a stage's `empty`: one of each warp that multiplies, in every block that is told."""
    return config["BM"] // 64 * _WARPS * config.get("CLUSTER", 1)
