"""What is read from text: compilers' logs, PTX declarations, SASS listings, includes."""

from collections import Counter

import pytest

from lowlevel import paths
from lowlevel.toolchain import headers, log, sass, signature
from lowlevel.toolchain.binary import Parameter, Resources

NVRTC_SM80 = """\
ptxas info    : 0 bytes gmem, 24 bytes cmem[4]
ptxas info    : Compiling entry function 'gemm' for 'sm_80'
ptxas info    : Function properties for gemm
ptxas         .     320 bytes stack frame, 316 bytes spill stores, 312 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 49152 bytes smem, 400 bytes cmem[0], 8 bytes cmem[2]
ptxas info    : Compile time = 7.256 ms
ptxas info    : Compiling entry function 'fix_up' for 'sm_80'
ptxas info    : Function properties for fix_up
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 16 registers, used 0 barriers, 380 bytes cmem[0]
ptxas info    : Function properties for _Z6helperf
ptxas         .     88 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads
"""

LINKER_SM90A = """\
ptxas info    : 0 bytes gmem
ptxas info    : Function properties for _Z6helperf
ptxas         .     88 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Compiling entry function 'wgmma' for 'sm_90a'
ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due to a call
ptxas info    : Function properties for wgmma
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 168 registers, used 3 barriers
"""


def test_resources_of_each_kernel():
    assert log.resources(NVRTC_SM80) == {
        "gemm": Resources(255, stack=320, spill_stores=316, spill_loads=312, shared=49152, barriers=1, constant=408),
        "fix_up": Resources(16, barriers=0, constant=380),
    }


def test_resources_as_the_linker_words_them():
    assert log.resources(LINKER_SM90A) == {"wgmma": Resources(168, barriers=3)}
    assert log.resources("") == {}


def test_spills_are_stores_and_loads():
    assert log.resources(NVRTC_SM80)["gemm"].spills == 628


@pytest.mark.parametrize(
    "line",
    [
        "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due to a call",
        "ptxas info    : (C7508) Potential Performance Loss: 'setmaxnreg' ignored to maintain minimum registers",
        "ptxas info    : (C7517) warpgroup.wait is injected in around line 40 by compiler",
        "ptxas warning : Registers are spilled to local memory in function 'gemm', 4 bytes spill stores",
        'k.cu(3): warning #177-D: variable "unused" was declared but never referenced',
    ],
)
def test_remarks_are_kept(line):
    assert log.advisories(f"ptxas info    : 0 bytes gmem\n  {line}\n  {line}\n") == (line,)


def test_a_clean_log_has_no_remarks():
    clean = NVRTC_SM80 + 'Remark: The warnings can be suppressed with "-diag-suppress <warning-number>"\n'
    assert log.advisories(clean) == ()


def test_first_error():
    text = 'k.cu(1): warning #177-D: unused\n\nk.cu(2): error: identifier "y" is undefined\nk.cu(9): error: later\n'
    assert log.first_error(text) == 'k.cu(2): error: identifier "y" is undefined'
    assert log.first_error("something else\n") == "something else"
    assert log.first_error("") == "empty log"


PTX = """\
// .version 1.0 of a comment
.version 8.0
.target sm_90a  // , debug
.address_size 64
/* .entry ghost(.param .u64 x) */
.func (.param .b32 out) helper(.param .b32 in) { ret; }
.visible .entry gemm(
    .param .u64 .ptr .global .align 16 gemm_param_0,
    .param .u64 .ptr .align 1 gemm_param_1, // the second
    .param .u32 M,
    .param .align 64 .b8 map[128],
    .param .f32 alpha, .param .u16 h
)
.maxntid 384, 1, 1
.minnctapersm 1
{ ret; }
.entry bare { ret; }
.visible .entry none() { ret; }
"""


def test_ptx_declarations():
    pointer = Parameter("u64", 8, 8)
    assert signature.version(PTX) == (8, 0)
    assert signature.target(PTX) == "sm_90a"
    assert signature.entries(PTX) == {
        "gemm": (
            pointer,
            pointer,
            Parameter("u32", 4, 4),
            Parameter("b8", 128, 64),
            Parameter("f32", 4, 4),
            Parameter("u16", 2, 2),
        ),
        "bare": (),
        "none": (),
    }


def test_text_that_is_no_ptx():
    assert signature.version("hello") == (0, 0)
    assert signature.target("hello") == ""
    assert signature.entries("hello") == {}


LISTING = """\
//--------------------- .text.gemm                 --------------------------
	.section	.text.gemm,"ax",@progbits
gemm:
.text.gemm:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/              @!P0 LDGSTS.E.BYPASS.128 [R3], desc[UR4][R2.64] ;
        /*0020*/              @UP1 UIADD3 UR4, UR4, 0x1, URZ ;
        /*0030*/                   HMMA.16816.F32.BF16 R4, R4, R8, R4 ;
        /*0040*/                   HMMA.16816.F32.BF16 R4, R4, R8, R4 ;
        /*0050*/                   EXIT ;
	.section	.text.other,"ax",@progbits
.text.other:
        /*0000*/                   FFMA R0, R1, R2, R0 ;
"""


def test_instructions_are_counted_with_their_modifiers():
    counted = sass.instructions(LISTING)
    assert counted == Counter(
        {"HMMA.16816.F32.BF16": 2, "LDC": 1, "LDGSTS.E.BYPASS.128": 1, "UIADD3": 1, "EXIT": 1, "FFMA": 1}
    )


def test_one_kernels_part_of_a_listing():
    assert sass.instructions(sass.function_text(LISTING, "other")) == Counter({"FFMA": 1})
    assert "FFMA" not in sass.instructions(sass.function_text(LISTING, "gemm"))
    assert sass.function_text(LISTING, "absent") == ""


@pytest.mark.parametrize(
    ("opcode", "there"),
    [("HMMA.16816", True), ("HMMA", True), ("LDGSTS", True), ("HMMA.1", False), ("HMM", False), ("LDSM", False)],
)
def test_an_opcode_is_met_by_its_leading_parts(opcode, there):
    assert sass.has(sass.instructions(LISTING), opcode) is there


@pytest.fixture
def kernels(tmp_path, monkeypatch):
    """A folder of kernels of our own, with cu/include."""
    (tmp_path / "cu" / "include").mkdir(parents=True)
    monkeypatch.setattr(paths, "kernel_root", lambda: tmp_path)
    return tmp_path


def test_includes_are_followed(kernels):
    (kernels / "cu" / "include" / "a.cuh").write_text('#pragma once\n#include "b.cuh"\n#include <cuda_fp16.h>\n')
    (kernels / "cu" / "include" / "b.cuh").write_text('#  include "a.cuh"\n')
    (kernels / "cu" / "near.cuh").write_text("")
    source = kernels / "cu" / "k.cu"
    source.write_text('#include "a.cuh"\n  #include "near.cuh"\n#include <b.cuh>\n#include "mma.h"\n')
    files, others = headers.included(source)
    assert [path.name for path in files] == ["a.cuh", "b.cuh", "near.cuh"]
    assert others == ["cuda_fp16.h", "mma.h"]


@pytest.mark.parametrize(
    ("header", "carrier"),
    [
        ("cuda_bf16.h", "nvidia-cuda-runtime"),
        ("mma.h", "nvidia-cuda-crt"),
        ("crt/mma.h", "nvidia-cuda-nvcc-cu12"),
        ("cuda/barrier", "nvidia-cuda-cccl"),
        ("stdint.h", "no standard library"),
        ("mine.cuh", "neither beside the source nor in cu/include"),
    ],
)
def test_a_missing_header_has_advice(header, carrier):
    assert carrier in headers.missing_header_advice(header)
