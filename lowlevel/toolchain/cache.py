"""Compiled kernels on disk, found by a hash of everything that made them.

A file is a checksum and a pickle, written aside and renamed, so that parallel runs never see half of one; a file
that does not check is as good as none.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import pickle
import sys
import tempfile
import warnings
from dataclasses import replace
from pathlib import Path

from lowlevel import paths
from lowlevel.toolchain import headers, nvrtc
from lowlevel.toolchain.binary import Binary, Request

_FORMAT = 1


def key(request: Request) -> str:
    """SHA-256 over source, headers, options, architecture, entries and the compiler's identity."""
    digest = hashlib.sha256()
    files, system = headers.included(request.source) if request.language == "cuda" else ([], [])
    facts = [_FORMAT, request.language, request.source.name, request.arch, request.entries, request.defines]
    facts += [nvrtc.OPTIONS if request.language == "cuda" else (), system, compiler_identity(request.language)]
    digest.update(repr(facts).encode())
    for path in (request.source, *files):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


@functools.cache
def compiler_identity(language: str) -> str:
    """Version and build of the compiler, told from its library without loading it.

    The library's path, size and time of change stand for its build; a different one is a different compiler.
    """
    library = library_path("nvrtc" if language == "cuda" else "nvJitLink")
    if library is None:
        return "none"
    status = library.stat()
    return f"{library.name}:{status.st_size}:{status.st_mtime_ns}"


def library_path(name: str) -> Path | None:
    """Where pathfinder finds a CUDA library; remembered on disk, since asking loads the library."""
    memo = paths.cache_dir() / "libraries.json"
    with contextlib.suppress(OSError, ValueError, KeyError):
        path = Path(json.loads(memo.read_text())[f"{sys.prefix}:{name}"])
        if path.is_file():
            return path
    try:
        from cuda import pathfinder

        path = Path(pathfinder.load_nvidia_dynamic_lib(name).abs_path).resolve()
    except (ImportError, RuntimeError):
        return None
    with contextlib.suppress(OSError):
        known = {}
        with contextlib.suppress(OSError, ValueError):
            known = json.loads(memo.read_text())
        write(memo, json.dumps({**known, f"{sys.prefix}:{name}": str(path)}).encode())
    return path


def load(request: Request) -> Binary | None:
    """The binary made from the same request before, or None."""
    try:
        data = _file(request).read_bytes()
    except OSError:
        return None
    checksum, body = data[:32], data[32:]
    if hashlib.sha256(body).digest() != checksum:
        return None
    with contextlib.suppress(Exception):
        return replace(pickle.loads(body), cached=True, source=str(request.source))
    return None


def store(request: Request, binary: Binary) -> None:
    """Keeps a binary; where the folder cannot be written, warns once and goes on without."""
    body = pickle.dumps(binary)
    try:
        write(_file(request), hashlib.sha256(body).digest() + body)
    except OSError as error:
        _warn_once(f"compiled kernels are not kept: {paths.cache_dir()}: {error.strerror}; set LOWLEVEL_CACHE")


def write(path: Path, data: bytes) -> None:
    """Writes a file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def _file(request: Request) -> Path:
    name = key(request)
    return paths.cache_dir() / "kernels" / name[:2] / name


@functools.cache
def _warn_once(text: str) -> None:
    warnings.warn(text, stacklevel=2)
