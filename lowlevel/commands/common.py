"""Arguments that several commands share, and their meaning."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from tabulate import tabulate

from lowlevel import catalog, terminal
from lowlevel.catalog import own, sweep
from lowlevel.catalog.entry import LANGUAGES, Kernel, Variant
from lowlevel.catalog.select import entry_for, select
from lowlevel.dtypes import TYPES, Type
from lowlevel.errors import UsageError
from lowlevel.problems.gemm import LAYOUTS
from lowlevel.problems.shapes import parse_shape


@dataclass(frozen=True)
class Words:
    """The positional words of a command: names and globs, and shapes joined by commas."""

    patterns: tuple[str, ...]
    shapes: str


def split_words(words: Sequence[str]) -> Words:
    """Shapes start with a digit, as in `4096`, `2048x2304x768` or a list; everything else names kernels, a source
    file (`01_tile.cu`) included. Raises UsageError for a shape that is none."""
    numbers = [w for w in words if w[:1].isdigit() and not own.is_own(w)]
    if shapes := ",".join(numbers):
        parse_shape(shapes)
    return Words(tuple(w for w in words if w not in numbers), shapes)


def comma_list(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def type_list(text: str) -> tuple[str, ...]:
    """Names of types, which are all small letters: `FP32` is fp32."""
    return comma_list(text.lower())


def positive(text: str) -> int:
    """The type of an option that counts things."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number above 0")
    return int(text)


def real(text: str) -> float:
    """A number of an option; what range it must be in is said by who takes it."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number") from None


def add_words(parser: argparse.ArgumentParser, shapes: bool) -> None:
    what = "kernels by name, number or glob (gemm/02_tiled, gemm/02, ptx:gemm/*, gemm)"
    if shapes:
        what += ", and shapes (4096, 2048x2304x768, 1024,2048)"
    parser.add_argument("words", nargs="*", metavar="NAME|SHAPE" if shapes else "NAME", help=what)


def add_filters(parser: argparse.ArgumentParser, arch: str) -> None:
    parser.add_argument("--dtype", type=type_list, default=(), help="only these types: fp32, bf16, ...")
    parser.add_argument("--layout", type=comma_list, default=(), help="only these layouts: NN, NT, TN, TT")
    parser.add_argument("--language", type=comma_list, default=(), help="only these languages: cuda, ptx, mlir")
    parser.add_argument("--arch", help=arch)


def add_own(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("a kernel of your own", "A name that ends in .cu, .ptx or .mlir is your file.")
    what = "the kernel whose place the file takes, with its parameters, launch and types: gemm/02_tiled, or gemm/02"
    group.add_argument("--as", dest="stands_for", metavar="KERNEL", help=what)
    what = "another value for one of that kernel's compile-time numbers: BM=16. Its launch follows"
    group.add_argument("-D", dest="numbers", action="append", type=_number, default=[], metavar="NAME=value", help=what)


def _number(text: str) -> tuple[str, int]:
    name, _, value = text.partition("=")
    if not (name.isidentifier() and value.isdecimal() and 0 < int(value) < 2**31):
        raise argparse.ArgumentTypeError(f"'{text}' is not NAME=value with a whole number from 1 to {2**31 - 1}")
    return name, int(value)


def own_entries(patterns: Sequence[str], arguments: argparse.Namespace) -> list[tuple[str, Kernel]]:
    """(file, the catalog's kernel whose place it takes) for each file among the names."""
    files = [pattern for pattern in patterns if own.is_file_name(pattern)]
    if files and not arguments.stands_for:
        raise UsageError(f"{files[0]} is a file: say whose place it takes, as in `--as gemm/02_tiled`")
    if not files and (arguments.stands_for or arguments.numbers):
        raise UsageError("--as and -D are for a file of your own: name one that ends in .cu, .ptx or .mlir")
    return [(file, entry_for(arguments.stands_for, own.ENDINGS["." + file.rpartition(".")[2]])) for file in files]


def with_own(patterns: Sequence[str], arguments: argparse.Namespace) -> tuple[str, ...]:
    """The names, with each file of one's own as `my.cu as cuda:gemm/02_tiled`."""
    entries = dict(own_entries(patterns, arguments))
    numbers = tuple(dict(arguments.numbers).items())
    return tuple(own.derive(entries[p], p, numbers).label if p in entries else p for p in patterns)


def add_sweep(parser: argparse.ArgumentParser) -> None:
    what = "compile with each of these values of a kernel's compile-time number, a row each; the launch follows. "
    what += "Again for another number: every combination"
    parser.add_argument(
        "--sweep", dest="sweeps", action="append", type=_values, default=[], metavar="NAME=n,n,...", help=what
    )


def _values(text: str) -> tuple[str, tuple[int, ...]]:
    name, _, values = text.partition("=")
    if not (name.isidentifier() and all(value.isdecimal() for value in values.split(","))):
        raise argparse.ArgumentTypeError(f"'{text}' is not NAME=n,n,... with whole numbers: BK=8,16,32")
    return name, tuple(int(value) for value in values.split(","))


def sweep_of(arguments: argparse.Namespace) -> sweep.Sweep:
    """What the --sweep options say together."""
    names = [name for name, _ in arguments.sweeps]
    if repeated := [name for name in names if names.count(name) > 1]:
        raise UsageError(f"--sweep names {repeated[0]} twice: give its values once, {repeated[0]}=8,16")
    return dict(arguments.sweeps)


def swept(variants: list[Variant], arguments: argparse.Namespace) -> list[Variant]:
    """The variants at every point of --sweep; a line on standard error names the kernels left out."""
    points = sweep.swept(variants, sweep_of(arguments))
    if arguments.sweeps and (note := sweep.left_out(variants)):
        print(f"lowlevel: {note}", file=sys.stderr)
    return points


def add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--markdown", action="store_true", help="print a Markdown table")


def catalog_types() -> list[Type]:
    """Every type of some kernel, or of a library's row, in the order of `dtypes`, then those that only move."""
    return list(dict.fromkeys([*TYPES.values(), *(t for kernel in catalog.kernels() for t in kernel.types)]))


def chosen(patterns: Sequence[str], arguments: argparse.Namespace) -> list[Variant]:
    """Variants by name and filters. UsageError when nothing is left."""
    if unknown := set(arguments.language) - set(LANGUAGES):
        raise UsageError(f"no language '{sorted(unknown)[0]}'; there are: {', '.join(LANGUAGES)}")
    if unknown := set(arguments.layout) - set(LAYOUTS):
        raise UsageError(f"no layout '{sorted(unknown)[0]}'; there are: {', '.join(LAYOUTS)}")
    known = dict.fromkeys(name for t in catalog_types() for name in (t.name, t.dtype))
    if unknown := set(arguments.dtype) - set(known):
        raise UsageError(f"no type '{sorted(unknown)[0]}'; there are: {', '.join(known)}")
    found = [
        v
        for v in select(patterns)
        if (not arguments.dtype or v.type.dtype in arguments.dtype or v.type.name in arguments.dtype)
        and (not arguments.layout or not v.layout or v.layout in arguments.layout)
        and (not arguments.language or v.kernel.language in arguments.language)
    ]
    if not found:
        raise UsageError(f"no variant is left after --dtype, --layout and --language{_having(select(patterns))}")
    return found


def _having(variants: Sequence[Variant]) -> str:
    """What kernels have to filter by, where they are few enough for a line."""
    have = grouped(variants)
    return f"; there are: {', '.join(have)}" if len(have) <= 6 else "; `lowlevel list` shows all"


def grouped(variants: Sequence[Variant]) -> list[str]:
    """`cuda:gemm/14_wide (bf16, fp16; NN, NT)` for each kernel, with its types and layouts among the variants."""
    lines = []
    for kernel in dict.fromkeys(v.kernel for v in variants):
        mine = [v for v in variants if v.kernel == kernel]
        columns = dict.fromkeys(v.type.name for v in mine), dict.fromkeys(v.layout for v in mine if v.layout)
        lines.append(f"{kernel.shown} ({'; '.join(', '.join(column) for column in columns if column)})")
    return lines


def print_rows(rows: Sequence[dict], arguments: argparse.Namespace) -> None:
    """The same rows as JSON, Markdown or a table, which is as wide as the terminal where it would be wider."""
    if arguments.json:
        print(json.dumps(list(rows), indent=1))
        return
    columns = {key: [_text(row.get(key)) for row in rows] for key in dict.fromkeys(k for row in rows for k in row)}
    if arguments.markdown:
        print(tabulate(columns, headers="keys", tablefmt="github", disable_numparse=True))
    else:
        print(terminal.fitted(columns, terminal.width(sys.stdout)))


def _text(value: object) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return "" if value is None else str(value)
