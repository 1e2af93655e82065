"""The command lines of Nsight Compute, and running them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from lowlevel import doctor
from lowlevel.catalog.entry import Variant
from lowlevel.errors import DeviceError, LowlevelError, MissingError, UsageError
from lowlevel.nsight import output

_DEADLINE_S = 600


def target(variant: Variant, shape: str, launches: int, arch: str | None = None, device: int = 0) -> list[str]:
    """The program to profile: `launches` calls of a variant on real operands, and nothing else that counts."""
    words = [sys.executable, "-m", "lowlevel.commands.profile_target", variant.name]
    words += [shape] if shape else []
    words += ["--launches", str(launches), "--device", str(device)]
    return words + (["--arch", arch] if arch else [])


def filters(entry: str, skip: int, count: int) -> list[str]:
    """Only launches of that kernel, `count` of them, once `skip` have warmed up caches and clock.

    The clock is left as it is: by default ncu lowers it to the base clock, at which nothing was benchmarked.
    """
    return [
        *("--clock-control", "none"),
        *("--kernel-name-base", "function", "--kernel-name", entry),
        *("--launch-skip", str(skip), "--launch-count", str(count)),
    ]


def counters(ncu: str, entry: str, metrics: Sequence[str], skip: int, count: int, program: Sequence[str]) -> list[str]:
    """Reads the metrics, and prints them as CSV."""
    return [
        *(ncu, *filters(entry, skip, count)),
        *("--metrics", ",".join(metrics)),
        *("--csv", "--page", "raw", "--print-units", "base"),
        *program,
    ]


def record(ncu: str, entry: str, report: Path, skip: int, program: Sequence[str]) -> list[str]:
    """Counts every SASS instruction of one launch, and writes a report."""
    export = ["--section", "SourceCounters", "--export", str(report), "--force-overwrite"]
    return [ncu, *filters(entry, skip, 1), *export, *program]


def source_page(ncu: str, report: Path) -> list[str]:
    """Prints a report's counts, instruction by instruction, as CSV."""
    return [ncu, "--import", str(report), "--page", "source", "--print-source", "sass", "--csv"]


def find() -> str:
    """The path of ncu, or MissingError."""
    if found := doctor.ncu():
        return found
    raise MissingError(f"{doctor.NCU_ABSENT}: {doctor.NCU_MEND} (developer.nvidia.com/nsight-compute)")


def entry_of(variant: Variant, name: str | None) -> str:
    """The kernel to profile: of several launches of a call, the last, or the one named."""
    there = list(dict.fromkeys(step.entry for step in variant.kernel.steps))
    if name is not None and name not in there:
        raise UsageError(f"{variant.kernel.label} launches no '{name}'; it launches {', '.join(there)}")
    return name or variant.kernel.entry


def run(command: Sequence[str]) -> str:
    """Everything that ncu prints. Raises MissingError when it may not read the counters, DeviceError or LowlevelError
    for what else stopped it."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_DEADLINE_S)
    except subprocess.TimeoutExpired:
        raise DeviceError(f"ncu did not end in {_DEADLINE_S} s; killed") from None
    except OSError as error:
        raise MissingError(f"cannot run {command[0]}: {error.strerror}") from None
    text = done.stdout + done.stderr
    if output.lacks_permission(text):
        raise MissingError(f"{doctor.COUNTERS_KEPT}: {doctor.COUNTERS_MEND}, or be root")
    if done.returncode and not output.unknown_metrics(text):
        raise LowlevelError(f"ncu ended with code {done.returncode}: {output.last_words(text) or 'it said nothing'}")
    return text


def measure(ncu: str, entry: str, metrics: Sequence[str], skip: int, count: int, program: Sequence[str]) -> str:
    """Runs `counters`; once more without the metrics that this GPU does not have, if ncu names any."""
    text = run(counters(ncu, entry, metrics, skip, count, program))
    unknown = output.unknown_metrics(text)
    if not unknown:
        return text
    left = [m for m in metrics if not any(name and (m == name or m.startswith(f"{name}.")) for name in unknown)]
    if not left or len(left) == len(metrics):
        raise LowlevelError(f"ncu does not know {', '.join(unknown)}")
    print(f"lowlevel: this GPU or ncu has no {', '.join(unknown)}", file=sys.stderr)
    text = run(counters(ncu, entry, left, skip, count, program))
    if still := output.unknown_metrics(text):
        raise LowlevelError(f"ncu does not know {', '.join(still)}")
    return text
