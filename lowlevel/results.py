"""The results file: one object of environment, protocol and rows, written whole or not at all."""

from __future__ import annotations

from dataclasses import dataclass

SCHEMA = 1

#: ok: right, and timed unless it is a probe. wrong: a bad element. failed: refused, crashed, or the compiler did.
#: hang: past its deadline. skipped: cannot run here, the reason says why. implausible: faster than the hardware.
STATUSES = ("ok", "wrong", "failed", "hang", "skipped", "implausible")


@dataclass
class Row:
    """One variant at one shape. A figure that does not apply, or was not measured, is None.

    Times are microseconds; rates TFLOP/s and GB/s (10^9); the ratios are medians of paired rounds: above 1 this
    row is faster than the library. ratio_low and ratio_high bound vs_best_library with 95 % confidence.
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
