"""`python -m lowlevel.commands.profile_target VARIANT SHAPE`: the program that Nsight Compute looks at.

It launches one variant a few times on real operands. Nothing is checked or timed here: under a profiler every counter
is read by running the kernel again.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from lowlevel import catalog
from lowlevel.contender import KernelContender
from lowlevel.device.protocol import Buffer, Device
from lowlevel.errors import LowlevelError
from lowlevel.problems.base import Problem
from lowlevel.problems.make import make_problem
from lowlevel.problems.shapes import parse_shape
from lowlevel.toolchain.binary import Binary
from lowlevel.toolchain.build import build
from lowlevel.verify import padded


def parser() -> argparse.ArgumentParser:
    words = argparse.ArgumentParser("profile_target", description=__doc__)
    words.add_argument("variant", help="a row's whole name")
    words.add_argument("shape", nargs="?", default="")
    words.add_argument("--launches", type=int, default=4)
    words.add_argument("--arch")
    words.add_argument("--device", type=int, default=0)
    return words


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parser().parse_args(argv)
    try:
        run(arguments)
    except LowlevelError as error:
        print(f"lowlevel: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def run(arguments: argparse.Namespace) -> None:
    from lowlevel.device.cuda.device import open_device

    variant = catalog.find(arguments.variant)
    problem = make_problem(variant, parse_shape(arguments.shape)[0] if arguments.shape else ())
    device = open_device(arguments.device)
    binary = build(catalog.request(variant, arguments.arch or device.limits.arch))
    launch(device, variant, problem, binary, arguments.launches)


def launch(device: Device, variant, problem: Problem, binary: Binary, launches: int) -> None:
    """Calls the variant `launches` times, one after another."""
    call = KernelContender(variant, device.load(binary)).bind(device, problem, operands(device, problem))
    stream = device.stream()
    for _ in range(launches):
        call.launch(stream)
    stream.synchronize()


def operands(device: Device, problem: Problem) -> dict[str, Buffer]:
    """Normal random inputs, and room for the output: the data that `lowlevel bench` uses."""
    inputs = problem.inputs(0)
    buffers = {o.name: device.allocate(o.nbytes) for o in problem.operands()}
    for operand in problem.operands():
        if not operand.output:
            buffers[operand.name].upload(padded(operand, inputs[operand.name]))
    device.synchronize()
    return buffers


if __name__ == "__main__":
    sys.exit(main())
