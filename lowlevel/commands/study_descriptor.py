"""`lowlevel study descriptor`: the 64 bits that tell wgmma of an operand in shared memory, decoded or encoded."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable

from tabulate import tabulate

from lowlevel.errors import UsageError
from lowlevel.study import swizzle
from lowlevel.study.descriptor import (
    FIELDS,
    MAJORS,
    Descriptor,
    decode,
    encode,
    meaning,
    misplaced,
    next_k,
    overlaps,
    place,
    reserved,
)

_ABOUT = """\
Decodes a matrix descriptor of wgmma, or encodes one from its fields, which are in bytes.

  lowlevel study descriptor 0x4000004000010400                          what it says
  lowlevel study descriptor --start 0x4000 --sbo 1024                   a K-major tile, 128-byte swizzle
  lowlevel study descriptor --start 0x4000 --lbo 8192 --sbo 1024 --major MN
  lowlevel study descriptor --start 0x4000 --lbo 128 --sbo 256 --swizzle none
  lowlevel study descriptor --start 0x4020 --sbo 1024                   the second k of an instruction: 32 bytes on

--major says how the operand lies in shared memory, which the descriptor does not: rows along k (K), or rows along m or
n (MN, for which the instruction's transpose immediate is 1; 16-bit types only). Addresses follow for that one.
Exit code 1 when a decoded descriptor breaks a rule.
"""


def add(tools) -> None:
    parser = tools.add_parser(
        "descriptor",
        help="a wgmma matrix descriptor in words and bytes",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=_ABOUT,
    )
    parser.add_argument("hex", nargs="?", metavar="HEX", help="64 bits, hexadecimal: decode them")
    fields = parser.add_argument_group("fields to encode", "In bytes, decimal or 0x...")
    number = _number("a whole number: 1024 or 0x400")
    fields.add_argument("--start", type=number, metavar="BYTES", help="shared address of the first byte")
    fields.add_argument("--lbo", type=number, metavar="BYTES", help="leading dimension byte offset (16)")
    fields.add_argument("--sbo", type=number, metavar="BYTES", help="stride dimension byte offset")
    fields.add_argument("--swizzle", choices=tuple(swizzle.SPANS), help="128B if not given")
    fields.add_argument("--base-offset", type=number, metavar="N", help="0 where the tile begins as its pattern does")
    parser.add_argument("--major", choices=MAJORS, default="K", help="how the operand lies (K)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def _number(what: str) -> Callable[[str], int]:
    def read(text: str) -> int:
        try:
            return int(text, 0)
        except ValueError:
            raise argparse.ArgumentTypeError(f"'{text}' is not {what}") from None

    return read


def run(arguments: argparse.Namespace) -> int:
    word = _word(arguments)
    it, major = decode(word), arguments.major
    wrong = [f"bit {bit} is set and reserved" for bit in reserved(word)] + list(misplaced(it))
    wrong += overlaps(it, major)
    if arguments.json:
        found = {"word": f"{word:#018x}", **{name: getattr(it, name) for name in FIELDS}}
        print(json.dumps({**found, "major": major, "next_k": next_k(it, major), "wrong": wrong}))
        return int(bool(wrong))
    print(f"{word:#018x}: low word {word & 0xFFFFFFFF:#010x}, high word {word >> 32:#010x}\n")
    print(tabulate(_rows(word, it, major), ("bits", "field", "raw", "bytes", "meaning"), disable_numparse=True))
    print("\n" + _addresses(it, major))
    if wrong:
        print()
    for line in wrong:
        print(f"WRONG: {line}")
    return int(bool(wrong))


def _word(arguments: argparse.Namespace) -> int:
    """What is to be explained: the word given, or the one that the fields make."""
    given = {name: getattr(arguments, name) for name in FIELDS if getattr(arguments, name) is not None}
    if (arguments.hex is None) == (not given):
        raise UsageError("give a descriptor, `0x4000004000010400`, or fields, `--start 0x4000 --sbo 1024`: not both")
    if arguments.hex is not None:
        try:
            return int(arguments.hex, 16)
        except ValueError:
            raise UsageError(f"'{arguments.hex}' is no hexadecimal number: 0x4000004000010400") from None
    if missing := [name for name in ("start", "sbo") if name not in given]:
        raise UsageError(f"--{missing[0]} is missing: a descriptor needs --start and --sbo")
    made = encode(**{"lbo": 16, **given})
    for line in overlaps(made, arguments.major):
        raise UsageError(line)
    return made.word


def _rows(word: int, it: Descriptor, major: str) -> list[tuple[str, ...]]:
    """A line for each field, and for the bits between, from bit 0 up."""
    said = {
        "start": "shared address of the first byte",
        **{name: f"{major}-major: {text}" for name, text in meaning(it, major).items()},
        "base_offset": f"128-byte line, modulo 8, at which the pattern begins, if not at {_pattern(it)}",
        "swizzle": _swizzle(it),
    }
    rows, bit = [], 0
    for name, field in FIELDS.items():
        if field.low > bit:
            rows.append(_between(word, bit, field.low - 1))
        raw, bit = field.of(word), field.low + field.width
        shown = f"{raw * field.unit} ({raw * field.unit:#x})" if field.unit else ""
        rows.append((f"{field.low}-{bit - 1}", name.replace("_", " "), f"{raw:#x}", shown, said[name]))
    return rows


def _between(word: int, first: int, last: int) -> tuple[str, ...]:
    raw = word >> first & ((1 << last - first + 1) - 1)
    return (f"{first}-{last}", "(reserved)", f"{raw:#x}", "", "must be 0" if raw else "")


def _pattern(it: Descriptor) -> str:
    return f"a multiple of {swizzle.PATTERNS[it.swizzle]}" if it.swizzle != "none" else "0: no swizzle, no pattern"


def _swizzle(it: Descriptor) -> str:
    span = swizzle.SPANS[it.swizzle]
    if not span:
        return "none: 8 rows of 16 bytes follow each other"
    return f"{it.swizzle}: rows of {span} bytes, {swizzle.formula(it.swizzle)}"


def _addresses(it: Descriptor, major: str) -> str:
    """Formula and table: the first rows by 16-byte chunks, as far as the first of each stride."""
    span, chunk = swizzle.SPANS[it.swizzle] or swizzle.CHUNK, swizzle.CHUNK
    if major == "K":
        names, bytes_, rows = ("m or n", "bytes {}-{} of k"), range(0, 32, chunk), (*range(9), 16)
        number = 1
    else:
        names, rows = ("k", "m or n {}-{}"), (*range(9), 15)
        bytes_, number = range(0, span + chunk + 1, chunk), 2
    heads = [names[0], *(names[1].format(b // number, (b + chunk) // number - 1) for b in bytes_)]
    body = [[str(row), *(f"{it.address(major, row, b):#x}" for b in bytes_)] for row in rows]
    step = next_k(it, major)
    lines = [
        f"{major}-major, row = {names[0]}, byte along {'k' if major == 'K' else 'm or n'}:",
        f"  address = {place(major, it.swizzle)}" + f", span = {span}" * (it.swizzle != "none"),
    ]
    if it.swizzle != "none":
        of = f"(address / 128 - {it.base_offset})" if it.base_offset else "address / 128"
        lines.append(f"  then    = {swizzle.formula(it.swizzle).replace('address / 128', of)}")
    within = " (as long as a row has more)" if major == "K" and it.swizzle != "none" else ""
    lines.append(f"  the next k of an instruction: start + {step}, {step // 16:#x} more in the low word{within}")
    return "\n".join([*lines, "", tabulate(body, heads, disable_numparse=True, stralign="right")])
