"""`lowlevel show`: read a kernel, as written, as PTX, or as machine code."""

from __future__ import annotations

import argparse
import json

from lowlevel import catalog, hardware, paths
from lowlevel.catalog.entry import Variant
from lowlevel.catalog.select import one_kernel
from lowlevel.commands import common
from lowlevel.contender import launch_shape
from lowlevel.errors import UsageError
from lowlevel.problems.make import default_shape, make_problem
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
    if arguments.form == "resources":
        common.print_rows(resources(variant, arguments.arch), arguments)
        return 0
    if arguments.markdown:
        raise UsageError("--markdown is for `show ... resources`, the one form that is a table")
    text = text_of(variant, arguments.form, arguments.arch)
    if arguments.json:
        print(json.dumps({"variant": variant.name, "form": arguments.form, "text": text}, indent=1))
    else:
        print(text, end="")
    return 0


def resources(variant: Variant, arch: str) -> list[dict]:
    """A row for each of its kernels, with what the compiler says that it takes; dynamic_shared: bytes that a
    launch at the default shape asks for beside those."""
    binary = build(catalog.request(variant, arch))
    problem, limits = make_problem(variant, default_shape(variant)), hardware.typical(arch)
    asked = {
        step.entry: launch_shape(step.launch, variant.config, problem, limits).shared
        for step in variant.kernel.steps_for(problem)
    }
    return [
        {"entry": entry.name, "arch": binary.arch}
        | vars(entry.resources)
        | {"dynamic_shared": asked.get(entry.name, 0), "compiler": binary.compiler}
        for entry in binary.entries.values()
    ]


def text_of(variant: Variant, form: str, arch: str) -> str:
    """The kernel in a form that is a text. UsageError for one that its language does not have."""
    if form == "source":
        return (paths.kernel_root() / variant.kernel.path).read_text()
    if form in ("mlir", "llvm") and variant.kernel.language != "mlir":
        raise UsageError(f"{variant.kernel.label} has no form '{form}': that is for MLIR kernels")
    request = catalog.request(variant, arch)
    if form in ("mlir", "llvm"):
        return mlir.text_of(request) if form == "mlir" else mlir.llvm_ir(request)
    binary = build(request)
    return binary.ptx if form == "ptx" else sass.sass(binary.cubin)


def one(name: str) -> Variant:
    """The first variant of one kernel. UsageError when the name stands for several kernels."""
    return one_kernel(name)[0]
