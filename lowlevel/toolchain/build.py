"""Requests in, binaries out: from the cache, or compiled in child processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from lowlevel.errors import CompileError, LowlevelError, MissingError, UsageError
from lowlevel.toolchain import cache, mlir, nvjitlink, nvrtc
from lowlevel.toolchain.binary import Binary, Request
from lowlevel.worker import Pool, WorkerDied, WorkerFailed, WorkerHung

#: No kernel here compiles for longer than a few seconds; a compiler that does is hung.
DEADLINE_S = 120.0


def compile_one(request: Request) -> Binary:
    """Compiles in this process. `build` does so in a child, where a crash does no harm."""
    compilers = {"cuda": nvrtc.compile_cuda, "ptx": nvjitlink.assemble, "mlir": mlir.assemble}
    if request.language not in compilers:
        raise UsageError(f"no compiler for language '{request.language}'; there are: {', '.join(compilers)}")
    return compilers[request.language](request)


def build(request: Request) -> Binary:
    """One binary. Raises CompileError (also for a compiler that crashed or hung), MissingError or UsageError."""
    result = build_all([request], jobs=1)[0]
    if isinstance(result, LowlevelError):
        raise result
    return result


def build_here(request: Request) -> Binary:
    """From the cache, or compiled in this process: for the harness's own kernels, inside a worker."""
    key = _key(request)
    binary = cache.load(request, key)
    if binary is None:
        binary = compile_one(request)
        cache.store(request, key, binary)
    return binary


def build_all(
    requests: Sequence[Request],
    jobs: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    compiler: Callable[[Request], Binary] = compile_one,
    deadline: float = DEADLINE_S,
) -> list[Binary | LowlevelError]:
    """A binary or its error for each request, in order. `progress(done, total)` is called as they come.

    Equal requests are compiled once. Cache hits start no child process. A KeyboardInterrupt passes on, and says how
    many are kept.
    """
    wanted = dict.fromkeys(requests)
    results: dict[Request, Binary | LowlevelError] = {}
    misses: list[tuple[Request, str]] = []
    for request in wanted:
        try:
            key = _key(request)
        except UsageError as error:
            results[request] = error
            continue
        if (hit := cache.load(request, key)) is None:
            misses.append((request, key))
        else:
            results[request] = hit
    if progress:
        progress(len(results), len(wanted))
    kept = sum(isinstance(result, Binary) for result in results.values())
    if misses:
        pool = Pool(min(jobs or os.cpu_count() or 1, len(misses)), "compile")
        try:
            for index, result in pool.map(compiler, [(request,) for request, _ in misses], deadline):
                request, key = misses[index]
                results[request] = _told(request, result)
                if isinstance(result, Binary):
                    kept += cache.store(request, key, result)
                if progress:
                    progress(len(results), len(wanted))
        except KeyboardInterrupt as end:
            if kept:
                end.args = (f"{kept} of {len(wanted)} are compiled and kept; the same command goes on",)
            raise
    return [results[request] for request in requests]


def _key(request: Request) -> str:
    try:
        return cache.key(request)
    except OSError as error:
        raise UsageError(f"cannot read {error.filename}: {error.strerror}") from None


def _told(request: Request, result: Binary | LowlevelError) -> Binary | LowlevelError:
    """A compiler that crashed, hung or failed is a fact about this source: say which."""
    module = {"cuda": nvrtc, "mlir": mlir}.get(request.language, nvjitlink)
    what = {WorkerDied: "compiler", WorkerHung: "compiler hung:", WorkerFailed: "compiling failed:"}.get(type(result))
    if what is None:
        return result
    try:
        compiler = module.compiler_name()
    except MissingError as error:
        return error
    return CompileError(
        f"{request.source.name}: {what} {result}, {compiler}, {request.arch}", getattr(result, "traceback", "")
    )
