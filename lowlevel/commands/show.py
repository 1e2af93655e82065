"""`lowlevel show`: read a kernel, as written, as PTX, or as machine code."""

from __future__ import annotations

import argparse

from lowlevel import catalog, paths
from lowlevel.catalog.entry import Variant
from lowlevel.catalog.select import one_kernel
from lowlevel.commands import common
from lowlevel.toolchain import sass
from lowlevel.toolchain.build import build

_FORMS = ("source", "ptx", "sass", "resources")


def add(commands) -> None:
    parser = commands.add_parser(
        "show",
        help="read a kernel: source, PTX, SASS, resources",
        description="Prints one kernel. `lowlevel show ptx:gemm/02_tiled source`, `lowlevel show gemm/02_tiled sass`, "
        "`lowlevel show my.cu sass --as gemm/02`.",
    )
    parser.add_argument("variant", help="a kernel or a row's whole name; where both languages match, CUDA C++ is shown")
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


def one(name: str) -> Variant:
    """The first variant of one kernel. UsageError when the name stands for several kernels."""
    return one_kernel(name)[0]
