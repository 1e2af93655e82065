"""A progress line on a terminal; silence in a file or a pipe."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from tqdm import tqdm


def _line(total: int, what: str, form: str) -> tqdm:
    """Nothing where there is nothing to do, or nobody to see it; what it showed is wiped out at the end."""
    hidden = total == 0 or not sys.stderr.isatty()
    return tqdm(total=total, desc=what, disable=hidden, leave=False, dynamic_ncols=True, bar_format=form)


class Progress:
    """`total` steps of something, with the time left. `show` says what is happening now."""

    def __init__(self, total: int, what: str):
        self._bar = _line(total, what, "{desc} {n_fmt}/{total_fmt} |{bar:20}| {elapsed} + {remaining}{postfix}")

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def advance(self) -> None:
        self._bar.update(1)

    def reached(self, done: int, total: int) -> None:  # noqa: ARG002
        """`done` steps are done: the form in which `build_all` reports."""
        self._bar.update(done - self._bar.n)

    def show(self, text: str) -> None:
        self._bar.set_postfix_str(text)


class RowProgress:
    """Rows done of `total`, the time left by `left`, and what happens now: the line of `lowlevel bench`.

    left: seconds from now until the last row, or None while nothing is known.
    """

    def __init__(self, total: int, what: str, left: Callable[[], float | None]):
        self._left = left
        self._bar = _line(total, what, "{desc} {n_fmt}/{total_fmt} rows |{bar:20}| {elapsed}{postfix}")

    def __enter__(self) -> RowProgress:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def advance(self, rows: int) -> None:
        self._bar.update(rows)

    def show(self, text: str) -> None:
        if not self._bar.disable:
            self._bar.set_postfix_str(f"{left_text(self._left())}: {text}")


def left_text(seconds: float | None) -> str:
    """`about 3 min left`, `about 20 s left`; rounded as roughly as it is known."""
    if seconds is None:
        return "time left unknown"
    if seconds < 90:
        return f"about {max(5, 5 * round(seconds / 5))} s left"
    return f"about {round(seconds / 60)} min left"


class TimeLeft:
    """How long a bench will still take: what is left of its budget, and for the rest (verifying, preparing) what rows
    have cost so far. `now` is a clock in seconds."""

    def __init__(self, rows: int, budget_s: float, now: Callable[[], float] = time.monotonic):
        self._rows, self._budget, self._now = rows, budget_s, now
        self._start = now()
        self._done = 0
        self._timed = 0.0

    @property
    def budget_left(self) -> float:
        """Seconds of timing that are left; never less than 0."""
        return max(0.0, self._budget - self._timed)

    def timed(self, seconds: float) -> None:
        """`seconds` of the budget were used."""
        self._timed += seconds

    def finished(self, rows: int) -> None:
        self._done += rows

    def __call__(self) -> float | None:
        """Seconds; None before the first rows are done."""
        if not self._done:
            return None
        besides = max(0.0, self._now() - self._start - self._timed)
        return self.budget_left + besides / self._done * max(0, self._rows - self._done)
