"""What kernels there are. Everything else finds them here: tests, tables, the command line, the suites."""

from __future__ import annotations

import functools
import itertools

from lowlevel import paths
from lowlevel.catalog import (
    copy,
    gemm,
    gemm_ampere,
    gemm_fp8,
    gemm_hopper,
    gemm_mlir,
    gemm_split_k,
    own,
    probe,
    transpose,
)
from lowlevel.catalog.entry import LANGUAGES, Kernel, Twin, Variant, read_config
from lowlevel.catalog.sweep import WRITTEN_IN_THE_FILE
from lowlevel.dtypes import ELEMENTS
from lowlevel.errors import UsageError
from lowlevel.toolchain.arch import target_for
from lowlevel.toolchain.binary import Request

_MODULES = (gemm, gemm_ampere, gemm_split_k, gemm_hopper, gemm_fp8, gemm_mlir, transpose, copy, probe)


@functools.cache
def kernels() -> tuple[Kernel, ...]:
    """Every kernel: by operation, then number, then language."""
    found = [kernel for module in _MODULES for kernel in module.KERNELS]
    operations, languages = list(dict.fromkeys(kernel.operation for kernel in found)), list(LANGUAGES)
    return tuple(sorted(found, key=lambda k: (operations.index(k.operation), k.name, languages.index(k.language))))


def variants() -> list[Variant]:
    """Every kernel's default configuration, for each of its types and layouts."""
    return [variant for kernel in kernels() for variant in kernel.variants()]


def find(name: str) -> Variant:
    """The variant of a row's name, `cuda:gemm/02_tiled[fp32,NN,32x32x32]`, its numbers listed in the entry or not."""
    mine = own_kernel(name)
    for kernel in (mine,) if mine else kernels():
        if not name.startswith(kernel.label + "["):
            continue
        for variant in kernel.all_variants():
            if variant.name == name:
                return variant
    if variant := unlisted(name):
        return variant
    raise UsageError(f"no variant '{name}'; `lowlevel list` shows what there is")


def unlisted(name: str) -> Variant | None:
    """The variant of a row's whole name whose numbers are none of the entry's configurations, as a sweep makes them.

    None unless the bracket has each of the kernel's numbers, in the entry's order. UsageError for a kernel whose
    numbers are written in its file: it would not be compiled with others.
    """
    mine = own_kernel(name)
    for kernel in (mine,) if mine else kernels():
        if not name.startswith(kernel.label + "["):
            continue
        words = name.removeprefix(kernel.label + "[").removesuffix("]").split(",")
        config = read_config(words, tuple(kernel.configs[0]), kernel.optional)
        for (type_, layout), epilogue in itertools.product(kernel.products(), kernel.epilogues):
            variant = Variant(kernel, type_, layout, config or {}, epilogue)
            if config is None or variant.listed or variant.name != name:
                continue
            if not kernel.takes_numbers:
                raise UsageError(f"no variant '{name}': {WRITTEN_IN_THE_FILE}")
            return variant
    return None


def own_kernel(name: str) -> own.OwnKernel | None:
    """The kernel of a name like `my.cu as cuda:gemm/02_tiled`; None for the catalog's own names."""
    parts = own.parse(name)
    return own_kernel_of(*parts) if parts else None


@functools.cache
def own_kernel_of(file: str, label: str, numbers: own.Numbers) -> own.OwnKernel:
    """Made once: kernels are compared by identity."""
    entry = next((k for k in kernels() if k.label == label), None)
    if entry is None:
        raise UsageError(f"no kernel '{label}'; `lowlevel list` shows what there is")
    return own.derive(entry, file, numbers)


def idea(kernel: Kernel) -> str:
    """The one line that says what a kernel adds; a twin's is that of its number in the other language."""
    if not isinstance(kernel.idea, Twin):
        return kernel.idea
    return next(idea(k) for k in kernels() if k.name == kernel.name and k.language == kernel.idea.language)


def request(variant: Variant, arch: str) -> Request:
    """What to compile for a variant. UsageError when the kernel cannot exist on `arch`.

    CUDA C++ gets the configuration's numbers by their names, the element size of what it moves as ELEMENT_BYTES,
    the type as TYPE_<NAME>, the layout as A_TRANSPOSED and B_TRANSPOSED, and an epilogue as EPILOGUE_<NAME>. MLIR gets
    the type, as what `!elt` stands for.
    """
    from lowlevel.declare import declared  # it needs the problems, which need this package

    kernel = variant.kernel
    try:
        target = target_for(kernel.archs, arch)
    except UsageError as error:
        raise UsageError(f"{kernel.label}: {error}") from None
    entries = tuple(step.entry for step in kernel.steps)
    defines = tuple(defines_of(variant).items()) if kernel.language == "cuda" else ()
    parameters = tuple(declared(variant, step) for step in kernel.steps)
    lowered = {"type": variant.type.name, "lowered_for": kernel.archs[0]} if kernel.language == "mlir" else {}
    return Request(kernel.language, paths.kernel_root() / kernel.path, target, entries, defines, parameters, **lowered)


def defines_of(variant: Variant) -> dict[str, str]:
    defines = {name: str(value) for name, value in variant.config.items()}
    defines[f"TYPE_{variant.type.name.upper()}"] = "1"
    if variant.type.unit == "none":
        defines["ELEMENT_BYTES"] = str(ELEMENTS[variant.type.operand].bytes)
    if variant.layout:
        defines["A_TRANSPOSED"] = str(int(variant.layout[0] == "T"))
        defines["B_TRANSPOSED"] = str(int(variant.layout[1] == "T"))
    if variant.epilogue != "none":
        defines[f"EPILOGUE_{variant.epilogue.upper()}"] = "1"
    return defines
