"""CUDA C++ to cubin and PTX by NVRTC. Runs in a child process: NVRTC can crash the process that calls it."""

from __future__ import annotations

import re
import time

from lowlevel.errors import CompileError, MissingError, UsageError
from lowlevel.toolchain import headers, log, signature
from lowlevel.toolchain.arch import capability
from lowlevel.toolchain.binary import Binary, Entry, Request

#: Every compilation's options; a request adds architecture, folders and defines.
OPTIONS = ("--std=c++17", "-lineinfo", "--ptxas-options=-v", "--ptxas-options=--warn-on-spills")
#: From this release on NVRTC and nvJitLink keep machine code in the driver's cache, where there is a driver, and ptxas
#: is silent about what comes from there: neither resources nor remarks. This project's own cache keeps both.
CACHING_SINCE = (12, 9)


def bindings():
    """cuda.bindings.nvrtc with its library loaded, or MissingError.

    pathfinder has to load it: the 13.0 wheel finds its own builtins library only when that is loaded first.
    """
    try:
        from cuda import pathfinder
        from cuda.bindings import nvrtc
    except ImportError:
        raise MissingError("cuda.bindings is missing: pip install 'cuda-python==13.0.*' (CUDA 12: '12.9.*')") from None
    try:
        pathfinder.load_nvidia_dynamic_lib("nvrtc")
    except RuntimeError as error:
        raise MissingError(
            f"NVRTC is missing ({str(error).splitlines()[0]}): pip install 'nvidia-cuda-nvrtc==13.0.*' "
            "(CUDA 12: nvidia-cuda-nvrtc-cu12)"
        ) from None
    return nvrtc


def version() -> tuple[int, int]:
    _, major, minor = bindings().nvrtcVersion()
    return major, minor


def compiler_name() -> str:
    return "NVRTC {}.{}".format(*version())


def compile_cuda(request: Request) -> Binary:
    """Raises CompileError with the first error as its text and the whole log, UsageError for an unknown arch."""
    nvrtc = bindings()
    began = time.perf_counter()
    _check_arch(nvrtc, request.arch)
    source = request.source.read_text(encoding="utf-8")
    error, program = nvrtc.nvrtcCreateProgram(source.encode(), str(request.source).encode(), 0, [], [])
    try:
        options = [text.encode() for text in compile_options(request)]
        (error,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
        text = _text(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program)
        if error != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise CompileError(_explain(request, text, error.name), text)
        ptx = _text(nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX, program)
        cubin = _bytes(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN, program)
    finally:
        nvrtc.nvrtcDestroyProgram(program)
    return Binary(
        language=request.language,
        arch=request.arch,
        cubin=cubin,
        ptx=ptx,
        entries=entries(request, ptx, text),
        advisories=log.advisories(_by_name(request, text)),
        log=text,
        compiler=compiler_name(),
        seconds=time.perf_counter() - began,
        source=str(request.source),
    )


def compile_options(request: Request) -> list[str]:
    options = [f"--gpu-architecture={request.arch}", *OPTIONS, f"-I{headers.include_dir()}"]
    if version() >= CACHING_SINCE:
        options.append("--no-cache")
    _, system = headers.included(request.source)
    if system:
        options += [f"-I{folder}" for folder in headers.cuda_include_dirs()]
    return options + [f"-D{name}={value}" for name, value in request.defines]


def entries(request: Request, ptx: str, text: str) -> dict[str, Entry]:
    """The wanted kernels' parameters and resources. CompileError naming the module's kernels if one is missing, or
    how it must be declared if its parameters are not as many as it will be passed."""
    declared = signature.entries(ptx)
    taken = log.resources(text)
    for name in request.entries:
        if name not in declared:
            raise CompileError(_missing_entry(request, name, list(declared)), text)
        if name not in taken:
            raise CompileError(f"{request.source.name}: ptxas does not say what kernel '{name}' takes", text)
    for name, passed in zip(request.entries, request.parameters, strict=False):
        if (taken_here := len(declared[name])) != len(passed):
            said = f"kernel '{name}' takes {taken_here} parameters, and is passed {len(passed)}"
            raise CompileError(f"{request.source.name}: {said}: declare it as {request.declaration(name)}", text)
    return {name: Entry(name, taken[name], parameters) for name, parameters in declared.items() if name in taken}


def _missing_entry(request: Request, name: str, have: list[str]) -> str:
    said = f"{request.source.name}: no kernel '{name}'; the module has: {', '.join(have) or 'none'}"
    if expected := request.declaration(name):
        said += f"; expected: {expected}"
    if any(re.match(rf"_Z\d+{name}(?![a-z_])", other) for other in have):
        said += '; is extern "C" missing?'
    return said


def _check_arch(nvrtc, arch: str) -> None:
    _, count = nvrtc.nvrtcGetNumSupportedArchs()
    _, supported = nvrtc.nvrtcGetSupportedArchs()
    major, minor = capability(arch)
    if 10 * major + minor not in list(supported)[:count]:
        from cuda import pathfinder

        where = pathfinder.load_nvidia_dynamic_lib("nvrtc").abs_path
        known = ", ".join(f"sm_{n}" for n in list(supported)[:count])
        raise UsageError(f"{compiler_name()} ({where}) does not know {arch}; it knows {known}")


def _explain(request: Request, text: str, name: str) -> str:
    if match := re.search(r'(?:could not|cannot) open source file "([^"]+)"', text):
        folders = [str(headers.include_dir()), *map(str, headers.cuda_include_dirs())]
        advice = headers.missing_header_advice(match[1])
        return f"{request.source.name}: header '{match[1]}' not found in {', '.join(folders)}: {advice}"
    first = _by_name(request, log.first_error(text))
    if first.startswith("ptxas"):  # it numbers the lines of the PTX, which nobody sees
        first = f"{request.source.name}: {first.split(':', 1)[-1].strip()}"
    first = re.sub(r"^(\S+)\((\d+)\): ", r"\1:\2: ", first)
    if name != "NVRTC_ERROR_COMPILATION":
        first += f" ({name})"
    return f"{first} ({compiler_name()}, {request.arch})"


def _by_name(request: Request, text: str) -> str:
    """A message with the source and headers as `fast_block.cuh`: it is kept in results, where folders say nothing."""
    for folder in (headers.include_dir(), request.source.parent):
        text = text.replace(f"{folder}/", "")
    return text


def _bytes(size_of, get, program) -> bytes:
    _, size = size_of(program)
    data = bytearray(size)
    get(program, data)
    return bytes(data)


def _text(size_of, get, program) -> str:
    """Logs and PTX end in NULs, and a log may have one inside: other tools choke on them."""
    return _bytes(size_of, get, program).decode(errors="replace").replace("\0", "").rstrip() + "\n"
