"""Architectures: what they are called, what runs where, and what to compile a kernel for.

A plain name (`sm_80`) is that architecture and, through PTX, everything newer. A name with a suffix (`sm_90a`) is
that architecture alone: its instructions exist nowhere else. See 'GPU Feature List' in the NVCC manual.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from lowlevel.errors import UsageError


@dataclass(frozen=True)
class Arch:
    name: str
    capability: tuple[int, int]
    about: str

    @property
    def only(self) -> bool:
        """Whether code for it runs nowhere else: a name that ends in 'a'."""
        return self.name.endswith("a")


ARCHS = {
    a.name: a
    for a in (
        Arch("sm_75", (7, 5), "Turing: T4"),
        Arch("sm_80", (8, 0), "Ampere: A100, A30; cp.async, mma.sync with bf16 and tf32"),
        Arch("sm_86", (8, 6), "Ampere: A10, A40, RTX 30"),
        Arch("sm_87", (8, 7), "Ampere: Orin"),
        Arch("sm_89", (8, 9), "Ada: L4, L40S, RTX 40; fp8 mma.sync"),
        Arch("sm_90", (9, 0), "Hopper: H100, H200; clusters, mbarrier, TMA"),
        Arch("sm_90a", (9, 0), "Hopper with wgmma and setmaxnreg"),
        Arch("sm_100", (10, 0), "Blackwell: B200"),
        Arch("sm_100a", (10, 0), "Blackwell with tcgen05"),
        Arch("sm_103", (10, 3), "Blackwell: B300"),
        Arch("sm_103a", (10, 3), "Blackwell B300 with tcgen05"),
        Arch("sm_110", (11, 0), "Blackwell: Jetson Thor"),
        Arch("sm_110a", (11, 0), "Blackwell Jetson Thor with tcgen05"),
        Arch("sm_120", (12, 0), "Blackwell: RTX 50"),
        Arch("sm_120a", (12, 0), "Blackwell RTX 50 with block-scaled mma.sync"),
        Arch("sm_121", (12, 1), "Blackwell: DGX Spark"),
        Arch("sm_121a", (12, 1), "Blackwell DGX Spark with block-scaled mma.sync"),
    )
}


def parse_arch(text: str | tuple[int, int]) -> str:
    """`90`, `9.0`, `sm_90`, `compute_90` and (9, 0) are all sm_90; a suffix is kept. UsageError if unknown."""
    if isinstance(text, tuple):
        text = f"{text[0]}{text[1]}"
    match = re.fullmatch(r"(?:sm_|compute_)?(\d+)\.?(\d)(a?)", text.strip().lower())
    name = f"sm_{match[1]}{match[2]}{match[3]}" if match else text
    if name not in ARCHS:
        raise UsageError(f"unknown architecture '{text}'; known: {', '.join(ARCHS)}")
    return name


def capability(arch: str) -> tuple[int, int]:
    return ARCHS[parse_arch(arch)].capability


def runs_on(arch: str, device: tuple[int, int]) -> bool:
    """Whether code compiled for `arch` can run on a device: as it is, or its PTX compiled by the driver."""
    own = ARCHS[parse_arch(arch)]
    return device == own.capability if own.only else device >= own.capability


def loads_as_cubin(arch: str, device: tuple[int, int]) -> bool:
    """Whether the machine code itself loads: the same major version, and no newer minor one."""
    own = ARCHS[parse_arch(arch)]
    if own.only:
        return device == own.capability
    return device[0] == own.capability[0] and device[1] >= own.capability[1]


def target_for(written_for: tuple[str, ...], wanted: str) -> str:
    """What to compile a kernel for when `wanted` is asked.

    written_for is a catalog entry's `archs`. The suffixed member of that capability wins, also when the plain name
    was asked (`sm_90` of a wgmma kernel means sm_90a); else `wanted` itself when a plain member is no newer.
    UsageError when the kernel's instructions do not exist there.
    """
    wanted = parse_arch(wanted)
    target = capability(wanted)
    for arch in written_for:
        if ARCHS[arch].only and ARCHS[arch].capability == target:
            return arch
    if any(runs_on(arch, target) for arch in written_for):
        return wanted
    raise UsageError(f"written for {', '.join(written_for)}; {_why_not(written_for, wanted)}")


def exists_on(written_for: tuple[str, ...], wanted: str) -> bool:
    """Whether there is anything to compile for `wanted`. UsageError for an unknown name."""
    parse_arch(wanted)
    try:
        target_for(written_for, wanted)
    except UsageError:
        return False
    return True


def _why_not(written_for: tuple[str, ...], wanted: str) -> str:
    if not all(ARCHS[arch].only for arch in written_for):
        return f"{wanted} is older"
    what = "wgmma exists" if written_for == ("sm_90a",) else "its instructions exist"
    return f"{what} only on {' and '.join(written_for)}, so there is no {wanted} build"
