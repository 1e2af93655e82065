"""`lowlevel verify`: is it right, on this GPU?"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace

from lowlevel import catalog, gpu_worker
from lowlevel.catalog.entry import Variant
from lowlevel.commands import common
from lowlevel.commands.bench import by_language
from lowlevel.device.cuda.driver import probe
from lowlevel.errors import DeviceError, LowlevelError, MissingError, UsageError
from lowlevel.problems.base import KINDS, Problem
from lowlevel.problems.make import make_problem
from lowlevel.problems.shapes import MOVE_SHAPES, edge_shapes, parse_shape
from lowlevel.progress import Progress
from lowlevel.static import refuses_numbers
from lowlevel.toolchain.build import build_all
from lowlevel.worker import Worker

_DEADLINE_S = 120.0
#: Scales of A and B that are not 1 and not each other.
OTHER_SCALES = (0.375, -2.5)


def add(commands) -> None:
    parser = commands.add_parser(
        "verify",
        help="check kernels against a float64 reference",
        description="Launches kernels on poisoned outputs and compares every element with float64, within a derived "
        "bound. Without shapes, a list around tile edges and odd sizes. Exit code 1 if anything is wrong, or every row "
        "is refused.",
    )
    common.add_words(parser, shapes=True)
    common.add_own(parser)
    common.add_sweep(parser)
    common.add_filters(parser, "compile for this architecture; an older one's PTX is compiled by the driver")
    common.add_output(parser)
    parser.add_argument("--kind", type=common.comma_list, default=KINDS, help="inputs: normal,integer (both)")
    parser.add_argument("--repeats", type=common.positive, default=2, help="launches whose bits must agree")
    what = f"after so long without a result a launch counts as hanging, and its process is ended ({_DEADLINE_S:g})"
    parser.add_argument("--deadline", type=common.positive, default=_DEADLINE_S, metavar="SECONDS", help=what)
    parser.add_argument("--device", type=int, default=0, help="GPU number")
    parser.add_argument(
        "--in-process", action="store_true", help="no child process: for compute-sanitizer and debuggers"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    if unknown := set(arguments.kind) - set(KINDS):
        raise UsageError(f"no kind '{sorted(unknown)[0]}'; there are: {', '.join(KINDS)}")
    words = common.split_words(arguments.words)
    patterns = by_language(common.with_own(words.patterns, arguments), arguments.language)
    variants = common.swept(common.chosen(patterns, arguments), arguments)
    if reason := probe():
        raise MissingError(f"verify needs a GPU: {reason}")
    gpu = InProcess(arguments.device) if arguments.in_process else Worker("gpu", gpu_worker.start, (arguments.device,))
    try:
        rows = verify_all(gpu, variants, words.shapes, arguments)
    finally:
        gpu.close()
    common.print_rows(rows, arguments)
    if all(row["verdict"] == "refused" for row in rows):
        print("lowlevel: nothing was verified: every row is refused, for the reason in it", file=sys.stderr)
        return 1
    return int(any(row["verdict"] not in ("ok", "refused") for row in rows))


class InProcess:
    """A Worker's `call` without the child."""

    def __init__(self, ordinal: int):
        gpu_worker.start(ordinal)

    def call(self, function, *args, deadline: float):  # noqa: ARG002
        return function(*args)

    def close(self) -> None:
        """Nothing to end: the process ends itself."""


def verify_all(gpu, variants: list[Variant], shapes: str, arguments: argparse.Namespace) -> list[dict]:
    capability = gpu.call(gpu_worker.limits, deadline=_DEADLINE_S).capability
    arch = arguments.arch or f"sm_{capability[0]}{capability[1]}"
    requests, rows = {}, []
    for variant in variants:
        try:
            requests[variant.name] = (variant, catalog.request(variant, arch))
        except UsageError as error:
            rows.append(_row(variant, "", "", "refused", str(error)))
    built = build_all([request for _, request in requests.values()])
    work = []
    for (variant, _), binary in zip(requests.values(), built, strict=True):
        if isinstance(binary, LowlevelError):
            verdict = "refused" if refuses_numbers(variant, binary) else "failed"
            rows.append(_row(variant, "", "", verdict, str(binary)))
        else:
            problems = problems_of(variant, shapes)
            work += [(variant, problem, binary, kind) for problem in problems for kind in arguments.kind]
    found = {}
    with Progress(len(work), "verifying") as progress:
        for index in by_problem(work):
            variant, problem, binary, kind = work[index]
            progress.show(f"{variant.shown} {problem.label}")
            found[index] = verify_one(gpu, variant, problem, binary, kind, arguments.repeats, arguments.deadline)
            progress.advance()
    return rows + [found[index] for index in range(len(work))]


def by_problem(work: Sequence[tuple]) -> list[int]:
    """The order in which a problem's inputs and reference are made once, for all who compute it."""
    first: dict[tuple, int] = {}
    for index, (_, problem, _, kind) in enumerate(work):
        first.setdefault((problem, kind), index)
    return sorted(range(len(work)), key=lambda index: first[work[index][1], work[index][3]])


def problems_of(variant: Variant, shapes: str, full: bool = False) -> list[Problem]:
    """The shapes given, or those around the variant's tile where mistakes show; `full` for the whole product."""
    operation = variant.kernel.operation
    if operation == "probe":
        return [make_problem(variant)]
    if shapes:
        return [make_problem(variant, shape) for shape in parse_shape(shapes)]
    edges = edge_shapes(*tile_of(variant), full=full)
    if operation != "gemm":
        edges = list(dict.fromkeys((*(shape[:2] for shape in edges), *MOVE_SHAPES)))
    problems = [make_problem(variant, shape) for shape in edges]
    if variant.type.scaled:
        problems.append(replace(problems[-1], scales=OTHER_SCALES))
    return problems


def tile_of(variant: Variant) -> tuple[int, int, int, int]:
    """BM, BN, BK and stages, or what mistakes are likely to be near of a kernel that has no such numbers."""
    usual = {"BM": 64, "BN": 64, "BK": 8, "STAGES": 1}
    return tuple(variant.config.get(name, default) for name, default in usual.items())


def verify_one(
    gpu, variant: Variant, problem: Problem, binary, kind: str, repeats: int, deadline: float = _DEADLINE_S
) -> dict:
    """One row: `verdict` is ok, wrong, failed or refused. `deadline` in seconds."""
    if refusal := variant.refusal(problem):
        return _row(variant, problem.label, kind, "refused", refusal)
    try:
        verdict = gpu.call(gpu_worker.verify, variant.name, problem, binary, 0, kind, repeats, deadline=deadline)
    except LowlevelError as error:
        if isinstance(error, DeviceError):
            gpu.close()  # the context may be lost: the next call starts a fresh child
        verdict = "refused" if isinstance(error, UsageError) and not variant.listed else "failed"
        return _row(variant, problem.label, kind, verdict, str(error))
    error = f"{verdict.max_error:.1e} / {verdict.error_bound:.1e}" if verdict.error_bound else "exact"
    return _row(variant, problem.label, kind, "ok" if verdict.ok else "wrong", verdict.reason, error, verdict.checked)


def _row(
    variant: Variant, shape: str, kind: str, verdict: str, reason: str, error: str = "", checked: str = ""
) -> dict:
    return {
        "variant": variant.shown,
        "shape": shape,
        "inputs": kind,
        "verdict": verdict,
        "error / bound": error,
        "checked": checked,
        "reason": reason,
    }
