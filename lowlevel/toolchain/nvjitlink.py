"""PTX to cubin by nvJitLink's ptxas. Runs in a child process, like NVRTC."""

from __future__ import annotations

import re
import time

from lowlevel.errors import CompileError, MissingError, UsageError
from lowlevel.toolchain import log, nvrtc, signature
from lowlevel.toolchain.arch import parse_arch
from lowlevel.toolchain.binary import Binary, Request


def bindings():
    """cuda.bindings.nvjitlink with its library loaded, or MissingError."""
    try:
        from cuda import pathfinder
        from cuda.bindings import nvjitlink
    except ImportError:
        raise MissingError("cuda.bindings is missing: pip install 'cuda-python==13.0.*' (CUDA 12: '12.9.*')") from None
    try:
        pathfinder.load_nvidia_dynamic_lib("nvJitLink")
    except RuntimeError as error:
        raise MissingError(
            f"nvJitLink is missing ({str(error).splitlines()[0]}): pip install 'nvidia-nvjitlink==13.0.*' "
            "(CUDA 12: nvidia-nvjitlink-cu12)"
        ) from None
    return nvjitlink


def compiler_name() -> str:
    return "nvJitLink {}.{}".format(*bindings().version())


def assemble(request: Request) -> Binary:
    """Raises CompileError whose text is `file:line: what ptxas says: the line`, with the whole log."""
    return assemble_text(request, request.source.read_text(encoding="utf-8"), request.source.name)


def assemble_text(request: Request, ptx: str, name: str) -> Binary:
    """The same for PTX that is not the request's source; `name` is what errors call it."""
    linker = bindings()
    began = time.perf_counter()
    if not signature.target(ptx):
        raise CompileError(f"{name}: not a PTX module: it has no '.target'")
    text, cubin = link(linker, ptx, request.arch, name)
    return Binary(
        language=request.language,
        arch=request.arch,
        cubin=cubin,
        ptx=ptx,
        entries=nvrtc.entries(request, ptx, text),
        advisories=log.advisories(text),
        log=text,
        compiler=compiler_name(),
        seconds=time.perf_counter() - began,
        source=str(request.source),
    )


def link(linker, ptx: str, arch: str, name: str) -> tuple[str, bytes]:
    """(the log, the machine code for `arch`)."""
    data = ptx.encode()
    arch = parse_arch(arch)
    options = [f"-arch={arch}", "-Xptxas=-v", "-Xptxas=--warn-on-spills"]
    if tuple(linker.version()) >= nvrtc.CACHING_SINCE:
        options.append("-no-cache")
    try:
        handle = linker.create(len(options), options)
    except linker.nvJitLinkError:
        raise UsageError(f"{compiler_name()} does not know {arch}") from None
    try:
        linker.add_data(handle, linker.InputType.PTX, data, len(data), name)
        linker.complete(handle)
        cubin = bytearray(linker.get_linked_cubin_size(handle))
        linker.get_linked_cubin(handle, cubin)
        return _log(linker.get_info_log_size, linker.get_info_log, handle), bytes(cubin)
    except linker.nvJitLinkError as error:
        text = _log(linker.get_error_log_size, linker.get_error_log, handle)
        if "'gpu-name'" in text:  # CUDA 12's linker finds out only now
            raise UsageError(f"{compiler_name()} does not know {arch}") from None
        raise CompileError(explain(name, ptx, text, str(error), arch), text) from None
    finally:
        linker.destroy(handle)


def explain(name: str, ptx: str, text: str, status: str, arch: str) -> str:
    """ptxas numbers the lines of a nameless input: give them the file's name, and show the line."""
    first = log.first_error(text) if text.strip() else status
    if match := re.search(r"line (\d+);?\s*(.*)", first):
        lines = ptx.splitlines()
        number = int(match[1])
        shown = lines[number - 1].strip() if 0 < number <= len(lines) else ""
        said = re.sub(r"^(?:fatal|error)\s*:\s*", "", match[2].strip())
        return f"{name}:{number}: {said}: {shown} ({arch})"
    return f"{name}: {first} ({arch})"


def _log(size_of, get, handle) -> str:
    data = bytearray(size_of(handle))
    if data:
        get(handle, data)
    return data.decode(errors="replace").replace("\0", "").rstrip() + "\n"
