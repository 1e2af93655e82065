"""`lowlevel study`: what has to be known to read these kernels, worked out and drawn."""

from __future__ import annotations

import argparse

from lowlevel.commands import study_banks, study_descriptor, study_diff, study_fragment, study_side, study_tma

_TOOLS = (study_fragment, study_banks, study_descriptor, study_tma, study_side, study_diff)

_ABOUT = """\
Tools to study kernels with. None needs a GPU.

  lowlevel study fragment mma.m16n8k16          which lane and register holds which element
  lowlevel study banks --row-bytes 64 --access ldmatrix --xor 'row / 2 % 4'
                                                bank conflicts of a layout
  lowlevel study descriptor 0x4000004000010400  a wgmma descriptor in words and bytes
  lowlevel study tma --box 8x64 --element 2 --swizzle 128B
                                                where a box lands in shared memory
  lowlevel study side gemm/04                   CUDA C++, PTX and SASS of a main loop, beside each other
  lowlevel study diff gemm/04 gemm/05           what a rung adds to the one before
"""


def add(commands) -> None:
    parser = commands.add_parser(
        "study",
        help="fragments, banks, descriptors, TMA boxes, main loops side by side, neighbours compared",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=_ABOUT,
    )
    parser.set_defaults(run=parser.without_command)
    tools = parser.add_subparsers(dest="tool", metavar="TOOL")
    for tool in _TOOLS:
        tool.add(tools)
