"""`lowlevel export`: take a kernel home."""

from __future__ import annotations

import argparse
from pathlib import Path

from lowlevel import catalog, hardware, tuned
from lowlevel.catalog.entry import Variant
from lowlevel.catalog.select import one_kernel
from lowlevel.device.cuda.driver import bindings, probe
from lowlevel.errors import UsageError
from lowlevel.export import folder
from lowlevel.hardware import Limits
from lowlevel.problems.base import Problem
from lowlevel.problems.make import make_problem
from lowlevel.problems.shapes import parse_shape
from lowlevel.toolchain.arch import parse_arch
from lowlevel.toolchain.build import build

DEFAULT_ARCH = "sm_90a"


def add(commands) -> None:
    parser = commands.add_parser(
        "export",
        help="write a kernel's cubin, PTX and launch parameters, with callers in Python and C (no GPU needed)",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Writes what someone else's program needs to launch a kernel at one shape: the cubin, the PTX,\n"
        "launch.json (entry, grid, block, shared memory, cluster, every parameter in order), and two programs that\n"
        "load, launch and check it without lowlevel.\n\n"
        "  lowlevel export gemm/02_tiled 4096 -o out      for the GPU here; without one, for an H200\n"
        "  lowlevel export ptx:gemm/02 1000x2000x300 --arch sm_80 -o out\n"
        "  python out/call.py\n"
        "  cd out && cc call.c -o call -lcuda && ./call",
    )
    parser.add_argument("variant", help="a kernel (gemm/02_tiled, ptx:gemm/02) or a row's whole name")
    parser.add_argument("shape", nargs="?", default="", help="one shape: 4096, 2048x2304x768; none for a probe")
    parser.add_argument("-o", "--output", default="exported", metavar="DIR", help="default: exported")
    parser.add_argument("--arch", help="what to compile for (default: the GPU here, else sm_90a)")
    parser.add_argument("--gpu", help="whose number of SMs the grid is made for: A100, H100 PCIe, H200, ...")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    if not arguments.output.strip():
        raise UsageError("-o: an empty name is no folder; `-o .` writes into this one")
    variant = one_kernel(arguments.variant)[0]
    problem = problem_of(variant, arguments.shape)
    if refusal := variant.refusal(problem):
        raise UsageError(f"{variant.name} does not take {problem.label}: {refusal}")
    arch, limits = target(arguments.arch, arguments.gpu)
    variant = tuned.suited(variant, problem, limits)
    binary = build(catalog.request(variant, arch))
    contents = folder.files(variant, problem, binary, limits)
    for path in folder.write_all(Path(arguments.output), contents):
        print(f"wrote {path}")
    return 0


def problem_of(variant: Variant, text: str) -> Problem:
    """One shape, or none for a probe."""
    shapes = parse_shape(text) if text else []
    if variant.kernel.operation == "probe" and shapes:
        raise UsageError(f"{variant.kernel.label} has a size of its own: give no shape")
    if len(shapes) > 1:
        raise UsageError(f"export takes one shape, not {len(shapes)}: {text}")
    if not shapes and variant.kernel.operation != "probe":
        raise UsageError(f"export needs a shape: lowlevel export {variant.kernel.label} 4096")
    return make_problem(variant, shapes[0] if shapes else ())


def target(arch: str | None, gpu: str | None) -> tuple[str, Limits]:
    """What to compile for, and the limits of the GPU that the grid is made for: as asked, else the GPU here, else an
    H200."""
    if gpu:
        limits = hardware.find(gpu)
        return parse_arch(arch) if arch else limits.arch, limits
    if arch:
        return parse_arch(arch), hardware.typical(parse_arch(arch))
    if probe() is None:
        from lowlevel.device.cuda.attributes import limits as limits_of
        from lowlevel.device.cuda.errors import check

        limits = limits_of(bindings(), check(bindings().cuDeviceGet(0), "opening GPU 0"))
        return limits.arch, limits
    return DEFAULT_ARCH, hardware.typical(DEFAULT_ARCH)
