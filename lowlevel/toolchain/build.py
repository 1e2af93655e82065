"""Requests in, binaries out: from the cache, or compiled in child processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from lowlevel.errors import CompileError, LowlevelError, UsageError
from lowlevel.toolchain import cache, nvjitlink, nvrtc
from lowlevel.toolchain.binary import Binary, Request
from lowlevel.worker import Pool, WorkerDied, WorkerFailed, WorkerHung

#: No kernel here compiles for longer than a few seconds; a compiler that does is hung.
DEADLINE_S = 120.0


def compile_one(request: Request) -> Binary:
    """Compiles in this process. `build` does so in a child, where a crash does no harm."""
    compilers = {"cuda": nvrtc.compile_cuda, "ptx": nvjitlink.assemble}
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
    binary = cache.load(request)
    if binary is None:
        binary = compile_one(request)
        cache.store(request, binary)
    return binary


def build_all(
    requests: Sequence[Request],
    jobs: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    compiler: Callable[[Request], Binary] = compile_one,
    deadline: float = DEADLINE_S,
) -> list[Binary | LowlevelError]:
    """A binary or its error for each request, in order. `progress(done, total)` is called as they come.

    Equal requests are compiled once. Cache hits start no child process.
    """
    results: dict[Request, Binary | LowlevelError] = {}
    for request in requests:
        if request not in results and (hit := _cached(request)) is not None:
            results[request] = hit
    misses = [r for r in dict.fromkeys(requests) if r not in results]
    if progress:
        progress(len(results), len(results) + len(misses))
    if misses:
        pool = Pool(min(jobs or os.cpu_count() or 1, len(misses)), "compile")
        for index, result in pool.map(compiler, [(r,) for r in misses], deadline):
            request = misses[index]
            results[request] = _told(request, result)
            if isinstance(result, Binary):
                cache.store(request, result)
            if progress:
                progress(len(results), len(set(requests)))
    return [results[request] for request in requests]


def _cached(request: Request) -> Binary | LowlevelError | None:
    try:
        return cache.load(request)
    except OSError as error:
        return UsageError(f"cannot read {request.source}: {error.strerror}")


def _told(request: Request, result: Binary | LowlevelError) -> Binary | LowlevelError:
    """A compiler that crashed or hung is a fact about this source: say which."""
    if isinstance(result, WorkerDied | WorkerHung | WorkerFailed):
        name = "NVRTC" if request.language == "cuda" else "nvJitLink"
        return CompileError(f"{request.source.name}: compiler {result} ({name}, {request.arch})")
    return result
