"""Arguments that several commands share, and their meaning."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass

from tabulate import tabulate

from lowlevel.catalog.entry import LANGUAGES, Variant
from lowlevel.catalog.select import select
from lowlevel.errors import UsageError
from lowlevel.problems.shapes import parse_shape


@dataclass(frozen=True)
class Words:
    """The positional words of a command: names and globs, and shapes joined by commas."""

    patterns: tuple[str, ...]
    shapes: str


def split_words(words: Sequence[str]) -> Words:
    """Shapes start with a digit, as in `4096`, `2048x2304x768` or a list; everything else names kernels. Raises
    UsageError for a shape that is none."""
    shapes = ",".join(w for w in words if w[:1].isdigit())
    if shapes:
        parse_shape(shapes)
    return Words(tuple(w for w in words if not w[:1].isdigit()), shapes)


def comma_list(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def add_words(parser: argparse.ArgumentParser, shapes: bool) -> None:
    what = "kernels by name or glob (gemm/02*, ptx:gemm/*, gemm)"
    if shapes:
        what += ", and shapes (4096, 2048x2304x768, 1024,2048)"
    parser.add_argument("words", nargs="*", metavar="NAME|SHAPE" if shapes else "NAME", help=what)


def add_filters(parser: argparse.ArgumentParser, arch: str) -> None:
    parser.add_argument("--dtype", type=comma_list, default=(), help="only these types: fp32, bf16, ...")
    parser.add_argument("--layout", type=comma_list, default=(), help="only these layouts: NN, NT, TN, TT")
    parser.add_argument("--language", type=comma_list, default=(), help="only these languages: cuda, ptx")
    parser.add_argument("--arch", help=arch)


def add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--markdown", action="store_true", help="print a Markdown table")


def chosen(patterns: Sequence[str], arguments: argparse.Namespace) -> list[Variant]:
    """Variants by name and filters. UsageError when nothing is left."""
    if unknown := set(arguments.language) - set(LANGUAGES):
        raise UsageError(f"no language '{sorted(unknown)[0]}'; there are: {', '.join(LANGUAGES)}")
    found = [
        v
        for v in select(patterns)
        if (not arguments.dtype or v.type.dtype in arguments.dtype or v.type.name in arguments.dtype)
        and (not arguments.layout or not v.layout or v.layout in arguments.layout)
        and (not arguments.language or v.kernel.language in arguments.language)
    ]
    if not found:
        raise UsageError("no variant is left after --dtype, --layout and --language; `lowlevel list` shows all")
    return found


def print_rows(rows: Sequence[dict], arguments: argparse.Namespace) -> None:
    """The same rows as JSON, Markdown or a table for the terminal."""
    if arguments.json:
        print(json.dumps(list(rows), indent=1))
        return
    style = "github" if arguments.markdown else "simple"
    shown = [{key: _text(value) for key, value in row.items()} for row in rows]
    print(tabulate(shown, headers="keys", tablefmt=style, disable_numparse=True))


def _text(value: object) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return "" if value is None else str(value)
