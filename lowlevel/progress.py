"""A progress line on a terminal; silence in a file or a pipe."""

from __future__ import annotations

import sys

from tqdm import tqdm


class Progress:
    """`total` steps of something, with the time left. `show` says what is happening now."""

    def __init__(self, total: int, what: str):
        self._bar = tqdm(
            total=total,
            desc=what,
            disable=total == 0 or not sys.stderr.isatty(),
            leave=False,
            dynamic_ncols=True,
            bar_format="{desc} {n_fmt}/{total_fmt} |{bar:20}| {elapsed} + {remaining}{postfix}",
        )

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
