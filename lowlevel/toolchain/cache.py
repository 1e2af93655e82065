"""Compiled kernels on disk, found by a hash of everything that made them.

A file is a checksum and a pickle, written aside and renamed, so that parallel runs never see half of one; a file
that does not check is as good as none.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import pickle
import sys
from dataclasses import replace
from pathlib import Path

from lowlevel import paths
from lowlevel.files import write_whole
from lowlevel.toolchain import headers, mlir, nvrtc
from lowlevel.toolchain.binary import Binary, Request


def key(request: Request) -> str:
    """SHA-256 over source, headers, options, architecture, entries, the compiler's build and our own code.

    Raises OSError when a source cannot be read.
    """
    files, system = headers.included(request.source) if request.language == "cuda" else ([], [])
    if request.language == "mlir" and mlir.find()[0] is None and mlir.committed(request).is_file():
        files = [mlir.committed(request)]
    facts = [
        request.language,
        request.arch,
        request.entries,
        request.parameters,
        request.defines,
        request.type,
        request.lowered_for,
        nvrtc.OPTIONS,
        system,
    ]
    digest = hashlib.sha256(repr((facts, compiler_identity(request.language), _own_code())).encode())
    for path in (request.source, *files):
        content = path.read_bytes()
        digest.update(f"{path.name} {len(content)} ".encode() + content)
    return digest.hexdigest()


@functools.cache
def compiler_identity(language: str) -> str:
    """The build of the compiler: its path, size and time of change, so that it need not be asked."""
    try:
        from cuda import pathfinder

        path = pathfinder.load_nvidia_dynamic_lib("nvrtc" if language == "cuda" else "nvJitLink").abs_path
        identity = _build_of(path)
        if language == "mlir" and (tool := mlir.find()[0]):
            identity += f" {_build_of(tool.path)}"
    except (ImportError, RuntimeError, OSError):
        return "none"
    return identity


def _build_of(path: str | os.PathLike) -> str:
    status = os.stat(path)
    return f"{path} {status.st_size} {status.st_mtime_ns}"


@functools.cache
def _own_code() -> str:
    """What we make of a compiler's output is in the cache too, so a change of this package is a change of it."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def load(request: Request, key: str) -> Binary | None:
    """The binary kept under `key`, or None when there is none or it does not check."""
    with contextlib.suppress(Exception):  # a damaged pickle can raise anything
        data = _file(key).read_bytes()
        checksum, body = data[:32], data[32:]
        if hashlib.sha256(body).digest() == checksum:
            return replace(pickle.loads(body), cached=True, source=str(request.source))
    return None


def store(request: Request, key_before: str, binary: Binary) -> bool:
    """Keeps a binary, unless its sources changed while they were compiled; returns whether it did. Where the folder
    cannot be written, says so once and goes on without."""
    body = pickle.dumps(binary)
    try:
        if key(request) != key_before:
            return False
        write_whole(_file(key_before), hashlib.sha256(body).digest() + body)
        return True
    except OSError as error:
        _say_once(f"compiled kernels are not kept: {paths.cache_dir()}: {error.strerror}; set LOWLEVEL_CACHE")
        return False


def _file(key: str) -> Path:
    return paths.cache_dir() / "kernels" / key[:2] / key


@functools.cache
def _say_once(text: str) -> None:
    print(f"lowlevel: {text}", file=sys.stderr)
