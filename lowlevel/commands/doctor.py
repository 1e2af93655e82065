"""`lowlevel doctor`: what this machine can do, and what mends the rest."""

from __future__ import annotations

import argparse
import dataclasses

from lowlevel import doctor
from lowlevel.commands import common


def add(commands) -> None:
    parser = commands.add_parser(
        "doctor",
        help="what this machine can do, and what mends the rest",
        description="Checks driver, compilers, libraries and tools. Exit code 2 if something is broken; what is only "
        "absent, a GPU too, is no error.",
    )
    common.add_output(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    findings = doctor.examine()
    common.print_rows([dataclasses.asdict(f) for f in findings], arguments)
    return 2 if any(doctor.broken(findings)) else 0
