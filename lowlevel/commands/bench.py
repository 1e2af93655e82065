"""`lowlevel bench`: how fast, beside cuBLAS."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from lowlevel.commands import common
from lowlevel.device.cuda.driver import probe
from lowlevel.errors import MissingError, UsageError
from lowlevel.measure.timers import TIMERS
from lowlevel.suite import Suite


def add(commands) -> None:
    parser = commands.add_parser(
        "bench",
        help="verify and time kernels beside cuBLAS",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Verifies, then times kernels and the library calls that compute the same, interleaved.\n\n"
        "  lowlevel bench                          the suite `main`\n"
        "  lowlevel bench 'gemm/*' 4096            the ladder at one shape\n"
        "  lowlevel bench ptx:gemm/02_tiled 1000x2000x300 --timer cold\n"
        "  lowlevel bench library/cublas 8192 --dtype bf16 --layout NT\n"
        "  lowlevel bench my.cu --as gemm/02 1024  your file beside the kernel whose place it takes, and cuBLAS\n"
        "  lowlevel bench cuda:gemm/04* 1024 --sweep BK=8,16,32,64 --sweep PAD=0,1\n"
        "                                          a row for each of the eight; what a number cannot be costs a row\n"
        "  lowlevel bench --suite chapter          bench/suites/chapter.toml: sections of kernels, types, layouts,\n"
        "                                          shapes, epilogues = [...], sweep = { BK = [8, 16] }\n"
        "  lowlevel bench --suite gemm-hopper 4096,8192 --dtype bf16 --processes 5 --resume --json h.json\n"
        "                                          part of a suite, in five processes; other parts, or the same after\n"
        "                                          Ctrl-C, are added to the file\n"
        "  lowlevel bench --tune gemm/08 1024,4096 verify and time up to 48 configurations for each shape and store\n"
        "                                          the fastest; after Ctrl-C the same command goes on\n"
        "  lowlevel bench --tune gemm/08 4096 --candidates 96 --budget 120 --json bench/tuned/h200.json\n"
        "                                          a configuration named whole, gemm/08[fp32,NN,...], is tried, too\n\n"
        "Without a GPU it says so, times nothing, and shows what can be known without one; with --json or --resume it\n"
        "fails, since there is nothing to save.",
    )
    common.add_words(parser, shapes=True)
    common.add_own(parser)
    common.add_sweep(parser)
    common.add_filters(parser, "compile for this architecture; an older one's PTX is compiled by the driver")
    what = "find the fastest configuration of a kernel that has a tuning space, and store it (docs/tuning.md)"
    parser.add_argument("--tune", action="store_true", help=what)
    what = "how many configurations --tune tries for a shape: the entry's and the best by the cost model (48)"
    parser.add_argument("--candidates", type=common.positive, metavar="N", help=what)
    parser.add_argument("--suite", help="a suite of bench/suites, or a .toml file")
    parser.add_argument("--quick", action="store_true", help="about a minute")
    parser.add_argument(
        "--budget", type=_positive, help="seconds of timing, instead of the suite's; of --tune, a shape"
    )
    parser.add_argument("--timer", choices=TIMERS, default="auto", help="how to time (default: by duration)")
    parser.add_argument("--cool", action="store_true", help="pause before each segment instead of sustained load")
    what = "run the whole suite this often, keeping the last three"
    parser.add_argument("--runs", type=common.positive, default=1, help=what)
    what = "time each problem in this many processes in turn; ratios and their intervals are over all of them"
    parser.add_argument("--processes", type=common.positive, default=1, metavar="N", help=what)
    what = "go on in the file: keep its rows, measure those that it has not, and save after each problem"
    parser.add_argument("--resume", action="store_true", help=what)
    parser.add_argument("--json", type=Path, metavar="FILE", help="save the rows (--tune: the choices) there")
    parser.add_argument("--markdown", action="store_true", help="print Markdown tables")
    parser.add_argument("--device", type=int, default=0, help="GPU number")
    parser.set_defaults(run=run)


def _positive(text: str) -> float:
    value = common.real(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not more than 0 seconds")
    return value


def run(arguments: argparse.Namespace) -> int:
    words = common.split_words(arguments.words)
    if arguments.tune:
        return tune(words, arguments)
    if arguments.candidates:
        raise UsageError("--candidates is for --tune, as in `lowlevel bench --tune gemm/08 4096 --candidates 96`")
    words = common.Words(beside(words.patterns, arguments), words.shapes)
    if arguments.sweeps and (arguments.suite or not words.patterns):
        raise UsageError("--sweep is for kernels by name, as in `lowlevel bench gemm/04_register_tile --sweep BK=8,16`")
    from lowlevel.bench import BenchOptions, choose, run_bench

    reason = probe()
    patterns = by_language(words.patterns, arguments.language)
    if arguments.sweeps and not reason:
        common.swept(common.chosen(patterns, arguments), arguments)  # refused, or remarked on, before a GPU is opened
    options = BenchOptions(
        patterns=patterns,
        shapes=words.shapes,
        suite=arguments.suite,
        dtypes=arguments.dtype,
        layouts=arguments.layout,
        arch=arguments.arch,
        timer=arguments.timer,
        cool=arguments.cool,
        quick=arguments.quick,
        budget=arguments.budget,
        json_path=arguments.json,
        markdown=arguments.markdown,
        device=arguments.device,
        runs=arguments.runs,
        processes=arguments.processes,
        resume=arguments.resume,
        sweep=common.sweep_of(arguments),
    )
    if reason:
        return without_gpu(reason, words, arguments, choose(options))
    return run_bench(options)


def tune(words: common.Words, arguments: argparse.Namespace) -> int:
    """`bench --tune NAME SHAPES`. MissingError without a GPU."""
    from lowlevel.tune import TuneOptions, choose, run_tune

    given = {"--suite": arguments.suite, "--sweep": arguments.sweeps, "--quick": arguments.quick}
    given |= {"--as": arguments.stands_for, "--runs": arguments.runs > 1, "--processes": arguments.processes > 1}
    given |= {"--resume": arguments.resume}
    if refused := [name for name, value in given.items() if value]:
        raise UsageError(f"--tune takes a kernel of the catalog and shapes, and no {refused[0]}")
    if not words.patterns:
        raise UsageError("--tune needs a kernel, as in `lowlevel bench --tune gemm/08 4096`")
    options = TuneOptions(
        patterns=by_language(words.patterns, arguments.language),
        shapes=words.shapes,
        dtypes=arguments.dtype,
        layouts=arguments.layout,
        arch=arguments.arch,
        timer=arguments.timer,
        cool=arguments.cool,
        budget=arguments.budget or TuneOptions.budget,
        candidates=arguments.candidates or TuneOptions.candidates,
        json_path=arguments.json,
        device=arguments.device,
    )
    choose(options)  # refused before a GPU is opened
    if reason := probe():
        raise MissingError(f"tuning needs a GPU: {reason}; `lowlevel advise` ranks configurations without one")
    return run_tune(options)


def beside(patterns: tuple[str, ...], arguments: argparse.Namespace) -> tuple[str, ...]:
    """The names, and after a file of one's own the kernel whose place it takes."""
    entries = [kernel.label for _, kernel in common.own_entries(patterns, arguments)]
    return common.with_own(patterns, arguments) + tuple(dict.fromkeys(entries))


def by_language(patterns: tuple[str, ...], languages: tuple[str, ...]) -> tuple[str, ...]:
    """`gemm/*` with --language ptx is `ptx:gemm/*`."""
    if not languages:
        return patterns
    return tuple(p if ":" in p else f"{language}:{p}" for p in patterns or ("*",) for language in languages)


def without_gpu(reason: str, words: common.Words, arguments: argparse.Namespace, chosen: Suite) -> int:
    """What can be known without a GPU: that everything compiles, and what it takes. MissingError where a file of
    measurements was asked for."""
    from lowlevel.commands import build

    if arguments.json or arguments.resume:
        where = arguments.json or "the suite's file"
        raise MissingError(
            f"no GPU: {reason}. Nothing can be measured, so nothing is written to {where}; without --json and --resume "
            "bench shows what the compiler says"
        )
    if arguments.processes > 1:
        print("lowlevel: --processes does nothing here: it is for measuring, which needs a GPU", file=sys.stderr)
    print(f"No GPU: {reason}. Nothing was timed; below is what the compiler says.\n", flush=True)
    names = words.patterns
    if not arguments.sweeps:  # which libraries do not have
        names = tuple(n for n in names if not n.startswith("library/"))
        if words.patterns and not names:
            print("The libraries have nothing to compile; on a machine with an NVIDIA GPU the same command times them.")
            return 0
    names = names or tuple(v.name for v in chosen.variants())
    arguments.words, arguments.gpu, arguments.jobs, arguments.json = names, None, None, None
    arguments.stands_for, arguments.numbers = None, []  # the names have them already
    code = build.run(arguments)
    print("\nOn a machine with an NVIDIA GPU the same command verifies and times these beside cuBLAS.")
    return code
