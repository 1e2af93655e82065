"""`lowlevel show`: read a kernel, as written, as PTX, or as machine code."""

from __future__ import annotations

import argparse

from lowlevel import catalog, paths
from lowlevel.catalog.entry import Variant
from lowlevel.catalog.select import one_kernel
from lowlevel.commands import common
from lowlevel.errors import UsageError
from lowlevel.toolchain import mlir, sass
from lowlevel.toolchain.build import build

_FORMS = ("source", "mlir", "llvm", "ptx", "sass", "resources")


def add(commands) -> None:
    parser = commands.add_parser(
        "show",
        help="read a kernel: source, PTX, SASS, resources; of MLIR also what is lowered, and LLVM IR",
        description="Prints one kernel. `lowlevel show ptx:gemm/02_tiled source`, `lowlevel show gemm/02_tiled sass`, "
        "`lowlevel show my.cu sass --as gemm/02`, `lowlevel show mlir:gemm/14_wide llvm`. Of an MLIR kernel `mlir` is "
        "what mlir-opt is given, with the type that `!elt` stands for, and `llvm` what it hands to LLVM.",
    )
    parser.add_argument("variant", help="a kernel or a row's whole name; where several languages match, the first")
    parser.add_argument("form", choices=_FORMS, nargs="?", default="source", help="what of it (default source)")
    parser.add_argument("--arch", default="sm_90a", help="what to compile for (default sm_90a)")
    common.add_own(parser)
    common.add_output(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    variant = one(*common.with_own([arguments.variant], arguments))
    if arguments.form == "source":
        print((paths.kernel_root() / variant.kernel.path).read_text(), end="")
        return 0
    if arguments.form in ("mlir", "llvm"):
        print(_before_ptx(variant, arguments), end="")
        return 0
    binary = build(catalog.request(variant, arguments.arch))
    if arguments.form == "ptx":
        print(binary.ptx, end="")
    elif arguments.form == "sass":
        print(sass.sass(binary.cubin), end="")
    else:
        rows = [
            {"entry": entry.name, "arch": binary.arch, **vars(entry.resources), "compiler": binary.compiler}
            for entry in binary.entries.values()
        ]
        common.print_rows(rows, arguments)
    return 0


def _before_ptx(variant: Variant, arguments: argparse.Namespace) -> str:
    if variant.kernel.language != "mlir":
        raise UsageError(f"{variant.kernel.label} has no form '{arguments.form}': that is for MLIR kernels")
    request = catalog.request(variant, arguments.arch)
    return mlir.text_of(request) if arguments.form == "mlir" else mlir.llvm_ir(request)


def one(name: str) -> Variant:
    """The first variant of one kernel. UsageError when the name stands for several kernels."""
    return one_kernel(name)[0]
