"""Choosing variants by name: globs, whole names, or a near miss explained."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from lowlevel import catalog
from lowlevel.catalog import own
from lowlevel.catalog.entry import Kernel, Variant
from lowlevel.errors import UsageError

#: A bracket that something other than its words and its end follows.
_OPEN = re.compile(r"\[(?![^\[\]]*\]$)")


def select(patterns: Sequence[str]) -> list[Variant]:
    """Variants whose name matches any pattern, in the catalog's order, each once; no pattern means all.

    A pattern is `gemm/02*` (any language) or its number alone, `gemm/02`; `ptx:gemm/*`; an operation (`gemm`); or a
    row's whole name with its bracket. A bracket may also hold only some of the variant's words: `gemm/01*[fp32]`; an
    epilogue is chosen only by its own word, `gemm/08*[bias]`. A whole name may have numbers that no configuration of
    the entry has; it, and the name of an own kernel, `my.cu as cuda:gemm/02_tiled`, stand for themselves, after the
    catalog's. Raises UsageError with the nearest names for a pattern that matches nothing, and for a bracket that is
    not closed.
    """
    everything = all_variants()
    if not patterns:
        return catalog.variants()
    chosen: dict[str, Variant] = {}
    others: dict[str, Variant] = {}
    for pattern in patterns:
        if _OPEN.search(pattern.rpartition(" as ")[2]) and not own.is_file_name(pattern):
            raise UsageError(f"no variant '{pattern}': its bracket is not closed at the end, as in gemm/02[fp32]")
        if "[" in pattern and (other := catalog.unlisted(pattern)):
            others[other.name] = replace(other, chosen_by="named")
            continue
        if kernel := catalog.own_kernel(pattern):
            mine = [v for v in kernel.variants() if _has_words(v, pattern.removeprefix(kernel.label))]
            mine = mine or [replace(v, chosen_by="named") for v in kernel.all_variants() if v.name == pattern]
            if not mine:
                raise UsageError(f"'{pattern}': the bracket of an own kernel takes its type and layout, or all numbers")
            others.update((v.name, v) for v in mine)
            continue
        found = [v for v in everything if v.name == pattern]
        found = found or [v for v in everything if matches(v, _of_number(pattern))]
        if "[" in pattern:
            found = [replace(v, chosen_by="named") for v in found]
        else:
            defaults = {v.name for v in catalog.variants()}
            found = [v for v in found if v.name in defaults]
        if not found and own.is_file_name(pattern):
            raise UsageError(f"'{pattern}' is a file; this takes kernels of the catalog: `lowlevel list` shows all")
        if not found:
            why = _why_not(pattern, everything) or f"{nearest(pattern)}; `lowlevel list` shows all"
            raise UsageError(f"no variant '{pattern}'{why}")
        chosen.update((v.name, v) for v in found)
    return [chosen[v.name] for v in everything if v.name in chosen] + list(others.values())


def entry_for(text: str, language: str) -> Kernel:
    """The kernel whose place a file of `language` takes, by name or the beginning of one: in that language, else in
    CUDA C++. UsageError with the names that fit when there are several, or the nearest when there is none."""
    head = text.rstrip("*")
    found = [k for k in catalog.kernels() if head in (k.name, k.label)]
    found = found or [k for k in catalog.kernels() if k.name.startswith(head) or k.label.startswith(head)]
    if not found:
        raise UsageError(f"--as: no kernel '{text}'{nearest(text)}; `lowlevel list` shows all")
    if len(names := dict.fromkeys(k.name for k in found)) > 1:
        raise UsageError(f"--as: '{text}' stands for several kernels: {', '.join(names)}; name one")
    return next((k for wanted in (language, "cuda") for k in found if k.language == wanted), found[0])


def one_kernel(name: str) -> list[Variant]:
    """The variants of one kernel: by its name, its number (`gemm/02`), or a row's whole name. CUDA C++ first where a
    name stands for a kernel in several languages. UsageError when it stands for several kernels."""
    found = select([name])
    if len({v.kernel.name for v in found}) > 1:
        names = ", ".join(dict.fromkeys(v.kernel.name for v in found))
        raise UsageError(f"'{name}' names several kernels: {names}; name one")
    return found


def all_variants() -> list[Variant]:
    """Every configuration and epilogue too."""
    return [variant for kernel in catalog.kernels() for variant in kernel.all_variants()]


def matches(variant: Variant, pattern: str) -> bool:
    """Globs apply to the part before the bracket; each word inside one must be a word of the variant's bracket."""
    head = pattern.partition("[")[0]
    return _has_words(variant, pattern) and any(fnmatchcase(text, head) for text in _names(variant.kernel))


def _of_number(pattern: str) -> str:
    """`gemm/02` as `gemm/02*`, with its bracket; other patterns as they are."""
    head, bracket, inside = pattern.partition("[")
    return f"{head}*{bracket}{inside}" if re.search(r"/\d\d$", head) else pattern


def _has_words(variant: Variant, pattern: str) -> bool:
    inside = set(filter(None, pattern.partition("[")[2].rstrip("]").split(",")))
    if variant.epilogue != "none" and variant.epilogue not in inside:
        return False
    return inside <= set(_words(variant.shown))


def _why_not(pattern: str, variants: Sequence[Variant]) -> str:
    """What is wrong with a bracket after the name of a kernel that there is; nothing where the name is wrong."""
    head, _, inside = _of_number(pattern).partition("[")
    brackets = [_words(v.shown) for v in variants if any(fnmatchcase(text, head) for text in _names(v.kernel))]
    known = dict.fromkeys(word for words in brackets for word in words)
    if not known or not inside:
        return ""
    if unknown := [word for word in inside.rstrip("]").split(",") if word not in known]:
        said = ", ".join(f"no '{word}'" for word in unknown)
        return f": {said}; a bracket takes {', '.join(known)}"
    return ": these words exist, but none has all of them"


def _words(name: str) -> list[str]:
    """What stands in a name's bracket."""
    return name.partition("[")[2].rstrip("]").split(",")


def _names(kernel: Kernel) -> tuple[str, ...]:
    return (kernel.label, kernel.name, kernel.operation, f"{kernel.language}:{kernel.operation}")


def nearest(pattern: str) -> str:
    """`; did you mean gemm/02_tiled?`, or nothing."""
    names = sorted({n for k in catalog.kernels() for n in (k.name, k.label)})
    head = pattern.partition("[")[0].lower().strip("*")
    close = difflib.get_close_matches(head, names, 3, 0.5) or [n for n in names if head and head in n][:3]
    return f"; did you mean {' or '.join(close)}?" if close else ""
