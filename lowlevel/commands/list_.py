"""`lowlevel list`: what kernels there are."""

from __future__ import annotations

import argparse

from lowlevel import catalog
from lowlevel.commands import common
from lowlevel.toolchain.arch import exists_on


def add(commands) -> None:
    parser = commands.add_parser("list", help="what kernels there are", description="The catalog, rung by rung.")
    common.add_words(parser, shapes=False)
    common.add_filters(parser, "only kernels that can be built for this architecture: sm_80, sm_90a, ...")
    common.add_output(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    variants = common.chosen(arguments.words, arguments)
    kernels = list(dict.fromkeys(v.kernel for v in variants))
    if arguments.arch:
        kernels = [k for k in kernels if exists_on(k.archs, arguments.arch)]
    rows = [
        {
            "kernel": k.name,
            "language": k.language,
            "idea": catalog.idea(k),
            "archs": [a if a.endswith("a") else f"{a}+" for a in k.archs],
            "types": list(dict.fromkeys(t.name for t in k.types)),
            "layouts": [layout for layout in k.layouts if layout],
            "source": k.path,
        }
        for k in kernels
    ]
    common.print_rows(rows, arguments)
    return 0
