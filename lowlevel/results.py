"""The results file: one object of environment, protocol and rows, written whole or not at all."""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from lowlevel.errors import UsageError
from lowlevel.files import write_whole

SCHEMA = 1

#: ok: right, and timed unless it is a probe. wrong: a bad element. failed: refused, crashed, or the compiler did.
#: hang: past its deadline. skipped: cannot run here, the reason says why. implausible: faster than the hardware.
STATUSES = ("ok", "wrong", "failed", "hang", "skipped", "implausible")

#: What of the environment must agree for times to be comparable.
CONDITIONS = (
    "gpu",
    "driver",
    "cuda_driver",
    "sm_clock_max_mhz",
    "memory_clock_max_mhz",
    "power_limit_w",
    "ecc",
    "mig",
    "cublas",
    "cublaslt",
    "nvrtc",
    "nvjitlink",
)


@dataclass
class Row:
    """One variant at one shape. A figure that does not apply, or was not measured, is None.

    Times are microseconds; rates TFLOP/s and GB/s (10^9); the ratios are medians of paired rounds: above 1 this
    row is faster than the library. ratio_low and ratio_high bound vs_best_library with 95 % confidence. rms_error is a
    part of C's rms. measured: the date of the environment that it was measured in. Where the protocol has several
    processes, medians are those of the processes' medians, and samples the rounds of all.
    """

    op: str
    variant: str
    config: str = ""
    chosen_by: str = "default"
    language: str = ""
    arch: str = ""
    dtype: str = ""
    accumulate: str = ""
    layout: str = ""
    epilogue: str = "none"
    m: int | None = None
    n: int | None = None
    k: int | None = None
    lda: int | None = None
    ldb: int | None = None
    ldc: int | None = None
    status: str = "skipped"
    reason: str = ""
    median_us: float | None = None
    iqr_us: float | None = None
    samples: int | None = None
    tflops: float | None = None
    gb_per_s: float | None = None
    percent_of_peak: float | None = None
    vs_cublas: float | None = None
    vs_best_library: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    max_error: float | None = None
    error_bound: float | None = None
    rms_error: float | None = None
    registers: int | None = None
    shared_bytes: int | None = None
    spill_bytes: int | None = None
    workspace_bytes: int | None = None
    host_us: float | None = None
    sm_clock_mhz: float | None = None
    power_w: float | None = None
    throttle_reasons: str | None = None
    timer: str | None = None
    cache: str | None = None
    regime: str | None = None
    repro: str = ""
    measured: str = ""

    @property
    def identity(self) -> tuple:
        """What was measured, whatever it was compiled for. A library's config is the algorithm that it chose."""
        config = "" if self.language == "library" else self.config
        what = (self.op, self.variant, self.language, config, self.dtype, self.layout, self.epilogue)
        return (*what, self.m, self.n, self.k)


@dataclass
class Results:
    """What a run found out: where, how, and a row for each variant and shape."""

    environment: dict
    protocol: dict
    rows: list[Row]

    def save(self, path: Path) -> None:
        """Writes the file whole, or raises UsageError and leaves what was there."""
        text = json.dumps(
            {
                "schema": SCHEMA,
                "environment": self.environment,
                "protocol": self.protocol,
                "rows": [asdict(row) for row in self.rows],
            },
            indent=1,
            allow_nan=False,
        )
        try:
            write_whole(path, f"{text}\n".encode())
        except OSError as error:
            raise UsageError(f"cannot write {path}: {error.strerror}; choose another place with --json") from None

    @classmethod
    def load(cls, path: Path) -> Results:
        """Raises UsageError for a file that is not there, does not parse, or has another schema."""
        try:
            data = json.loads(path.read_text())
        except OSError as error:
            raise UsageError(f"cannot read {path}: {error.strerror}") from None
        except ValueError as error:
            raise UsageError(f"{path} is not a results file: {error}") from None
        if not isinstance(data, dict):
            raise UsageError(f"{path} is not a results file: it holds a {type(data).__name__}, not an object")
        if data.get("schema") != SCHEMA:
            raise UsageError(f"{path} has schema {data.get('schema')}, this version reads {SCHEMA}: run it again")
        try:
            return cls(data["environment"], data["protocol"], [Row(**row) for row in data["rows"]])
        except (KeyError, TypeError) as error:
            raise UsageError(f"{path} is not a results file of schema {SCHEMA}: {error}") from None


def differing(held: Results, environment: dict, protocol: dict) -> list[str]:
    """`commit: a1 in it, b2 here`: what forbids that rows of these two stand in one file."""
    found = []
    names = (*CONDITIONS, "lowlevel", "commit", "modified")
    later = [name for name in (*held.protocol, *protocol) if name != "budget_s"]
    for wanted, left, right in ((names, held.environment, environment), (later, held.protocol, protocol)):
        for name in dict.fromkeys(wanted):
            if left.get(name) != right.get(name):
                found.append(f"{name}: {left.get(name)} in it, {right.get(name)} here")
    return found


def merged(held: Results, fresh: Results) -> Results:
    """The rows of both, fresh ones in the place of those held of the same problem and contender. The environment is the
    fresh one; those of the rows that were held are its `earlier`, each row's by its date, `measured`."""
    new = {row.identity for row in fresh.rows}
    date = str(held.environment.get("date", ""))
    rows = [replace(row, measured=row.measured or date) for row in held.rows if row.identity not in new]
    last = {name: value for name, value in held.environment.items() if name != "earlier"}
    dates = {row.measured for row in rows}
    earlier = [e for e in (*held.environment.get("earlier", ()), last) if str(e.get("date", "")) in dates]
    environment = {**fresh.environment, **({"earlier": earlier} if earlier else {})}
    return Results(environment, fresh.protocol, rows + fresh.rows)


def check_writable(path: Path) -> None:
    """Raises UsageError now rather than after minutes of measuring, and leaves nothing behind."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}; choose another place with --json") from None
    if path.is_dir():
        raise UsageError(f"cannot write {path}: it is a folder; give a file's name to --json")


def keep_previous(path: Path) -> None:
    """Moves the last run aside: of three in a row, `suite.json` is the last, `suite.1.json` the first."""
    first, second = (path.with_name(f"{path.stem}.{n}{path.suffix}") for n in (1, 2))
    if path.exists():
        if second.exists():
            os.replace(second, first)
        os.replace(path, second)


def runs(path: Path) -> list[Path]:
    """The runs kept beside a results file, oldest first, itself last."""
    kept = (path.with_name(f"{path.stem}.{n}{path.suffix}") for n in (1, 2))
    return [p for p in (*kept, path) if p.exists()]
