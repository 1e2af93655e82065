"""The real compilers on tiny sources: what they make, and what is said when they refuse."""

import sys

import pytest

from lowlevel import paths
from lowlevel.errors import CompileError, MissingError, UsageError
from lowlevel.toolchain import arch, headers, nvjitlink, nvrtc, sass
from lowlevel.toolchain.binary import Parameter, Request
from lowlevel.toolchain.build import compile_one

SCALE = """
struct alignas(64) Map { unsigned long long opaque[16]; };
extern "C" __global__ void scale(float* y, int n, const __grid_constant__ Map map) {
    __shared__ float tile[64];
    tile[threadIdx.x] = y[threadIdx.x] * FACTOR;
    __syncthreads();
    if (threadIdx.x < n) y[threadIdx.x] = tile[63 - threadIdx.x] + map.opaque[0];
}
"""

# Built so that the lines that matter have known numbers: .version is 2, the add is 8.
ADD = """\
// the smallest kernel
.version 7.0
.target sm_80
.address_size 64
.visible .entry add(.param .u64 y, .param .u32 n)
{
    .reg .u32 %count; .reg .u64 %base;
    add.u32 %count, %count, 1;
    ret;
}
"""


def cuda(tmp_path, text, target="sm_80", entries=("scale",), **defines):
    source = tmp_path / "scale.cu"
    source.write_text(text)
    return Request("cuda", source, target, entries, tuple((name, str(value)) for name, value in defines.items()))


def ptx(tmp_path, text, target="sm_80", entries=("add",)):
    source = tmp_path / "add.ptx"
    source.write_text(text)
    return Request("ptx", source, target, entries)


def refusal(request):
    with pytest.raises(CompileError) as caught:
        compile_one(request)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_cuda_gives_cubin_ptx_and_resources(tmp_path, target):
    binary = compile_one(cuda(tmp_path, SCALE, target, FACTOR=2))
    assert binary.cubin.startswith(b"\x7fELF")
    assert f".target {target}" in binary.ptx
    assert "\0" not in binary.ptx + binary.log
    entry = binary.entries["scale"]
    assert entry.parameters == (Parameter("u64", 8, 8), Parameter("u32", 4, 4), Parameter("b8", 128, 64))
    assert entry.resources.registers > 0
    assert (entry.resources.shared, entry.resources.barriers, entry.resources.spills) == (256, 1, 0)
    assert binary.advisories == ()
    assert binary.compiler.startswith("NVRTC ")


def test_defines_reach_the_compiler(tmp_path):
    assert compile_one(cuda(tmp_path, SCALE, FACTOR=2)).ptx != compile_one(cuda(tmp_path, SCALE, FACTOR=3)).ptx
    assert refusal(cuda(tmp_path, SCALE)).startswith('scale.cu:5: error: identifier "FACTOR" is undefined (NVRTC ')


def test_a_compile_error_keeps_the_whole_log(tmp_path):
    with pytest.raises(CompileError) as caught:
        compile_one(cuda(tmp_path, "int a = b;\nint c = d;\n"))
    assert "scale.cu:1:" in str(caught.value)
    assert '"d" is undefined' in caught.value.log


def test_a_warning_is_an_advisory_with_the_files_name(tmp_path):
    binary = compile_one(cuda(tmp_path, 'extern "C" __global__ void scale() { int unused; }'))
    (advisory,) = binary.advisories
    assert advisory.startswith("scale.cu(1): warning")


def test_spills_are_seen(tmp_path):
    body = "".join(f"float x{i} = y[{i} * n]; " for i in range(64))
    store = " + ".join(f"x{i} * x{(7 * i + 1) % 64}" for i in range(64))
    text = (
        'extern "C" __global__ void __launch_bounds__(1024, 2) scale(volatile float* y, int n)'
        f"{{ {body} __syncthreads(); y[0] = {store}; }}"
    )
    binary = compile_one(cuda(tmp_path, text))
    assert binary.entries["scale"].resources.spills > 0
    assert any("spill" in line for line in binary.advisories)


def test_a_missing_kernel_is_named_with_those_there_are(tmp_path):
    assert refusal(cuda(tmp_path, SCALE, entries=("gemm",), FACTOR=2)) == (
        "scale.cu: no kernel 'gemm'; the module has: scale"
    )
    assert refusal(ptx(tmp_path, ADD, entries=("gemm",))) == "add.ptx: no kernel 'gemm'; the module has: add"


def test_a_missing_header_is_one_line_with_the_folders_and_the_wheel(tmp_path, monkeypatch):
    monkeypatch.setattr(headers, "cuda_include_dirs", lambda: [tmp_path / "no_such_folder"])
    text = refusal(cuda(tmp_path, "#include <cuda_bf16.h>\n"))
    assert "header 'cuda_bf16.h' not found in" in text
    assert str(headers.include_dir()) in text
    assert "no_such_folder" in text
    assert "pip install nvidia-cuda-runtime" in text


def test_cudas_own_folders_are_searched_only_when_a_header_asks(tmp_path, monkeypatch):
    folder = tmp_path / "toolkit"
    folder.mkdir()
    (folder / "from_toolkit.h").write_text("#define FACTOR 4\n")
    monkeypatch.setattr(headers, "cuda_include_dirs", lambda: [folder])
    assert f"-I{folder}" not in nvrtc.compile_options(cuda(tmp_path, SCALE))
    for include in ("<from_toolkit.h>", '"from_toolkit.h"'):
        assert compile_one(cuda(tmp_path, f"#include {include}\n{SCALE}")).cubin


def test_our_own_headers_are_found(tmp_path, monkeypatch):
    (tmp_path / "cu" / "include").mkdir(parents=True)
    (tmp_path / "cu" / "include" / "factor.cuh").write_text("#define FACTOR 5\n")
    monkeypatch.setattr(paths, "kernel_root", lambda: tmp_path)
    assert compile_one(cuda(tmp_path, '#include "factor.cuh"\n' + SCALE)).cubin


@pytest.mark.parametrize("folder", [".", "cu/include"], ids=["beside the source", "the project's"])
def test_an_error_in_a_header_names_it_without_its_folder(tmp_path, monkeypatch, folder):
    """A reason is kept in results and stored choices, where a machine's folders say nothing."""
    monkeypatch.setattr(paths, "kernel_root", lambda: tmp_path)
    (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    (tmp_path / folder / "factor.cuh").write_text('static_assert(FACTOR == 5, "five");\n')
    text = refusal(cuda(tmp_path, '#include "factor.cuh"\n' + SCALE, FACTOR=4))
    assert text.startswith('factor.cuh:1: error: static assertion failed with "five"')
    assert str(tmp_path) not in text


def test_wgmma_without_the_a_is_refused_by_instruction(tmp_path):
    text = 'extern "C" __global__ void scale() { asm volatile("wgmma.fence.sync.aligned;"); }'
    assert "Instruction 'wgmma.fence' not supported on .target 'sm_90'" in refusal(cuda(tmp_path, text, "sm_90"))
    assert compile_one(cuda(tmp_path, text, "sm_90a")).entries["scale"]


def test_too_much_static_shared_memory_names_the_file(tmp_path):
    text = 'extern "C" __global__ void scale(int* y) { __shared__ int t[20000]; t[y[0]] = 1; y[1] = t[y[2]]; }'
    assert refusal(cuda(tmp_path, text)).startswith("scale.cu: Entry function 'scale' uses too much shared data")


def test_an_architecture_that_nvrtc_does_not_know(tmp_path, monkeypatch):
    bindings = nvrtc.bindings()
    monkeypatch.setattr(bindings, "nvrtcGetSupportedArchs", lambda: (0, [75, 80]))
    monkeypatch.setattr(bindings, "nvrtcGetNumSupportedArchs", lambda: (0, 2))
    with pytest.raises(
        UsageError, match=r"NVRTC \d+\.\d+ \(.*libnvrtc.*\) does not know sm_90a; it knows sm_75, sm_80"
    ):
        compile_one(cuda(tmp_path, SCALE, "sm_90a", FACTOR=1))
    with pytest.raises(UsageError, match="unknown architecture 'sm_42'"):
        compile_one(cuda(tmp_path, SCALE, "sm_42", FACTOR=1))


def test_ptx_gives_cubin_and_keeps_its_text(tmp_path):
    binary = compile_one(ptx(tmp_path, ADD))
    assert binary.cubin.startswith(b"\x7fELF")
    assert binary.ptx == ADD
    assert binary.entries["add"].parameters == (Parameter("u64", 8, 8), Parameter("u32", 4, 4))
    assert binary.entries["add"].resources.registers > 0
    assert binary.compiler.startswith("nvJitLink ")


def test_plain_ptx_assembles_for_newer_architectures_only(tmp_path):
    assert compile_one(ptx(tmp_path, ADD, "sm_90a")).cubin
    assert "add.ptx: " in refusal(ptx(tmp_path, ADD, "sm_75"))


def test_a_ptx_error_has_file_line_and_the_line_itself(tmp_path):
    text = ADD.replace("add.u32 %count, %count, 1;", "add.v3.u32 %count, %count, 1; // note")
    assert refusal(ptx(tmp_path, text)) == (
        "add.ptx:8: Unknown modifier '.v3': add.v3.u32 %count, %count, 1; // note (sm_80)"
    )


def test_a_ptx_newer_than_the_assembler_says_both_versions(tmp_path):
    text = refusal(ptx(tmp_path, ADD.replace(".version 7.0", ".version 99.0")))
    assert text.startswith("add.ptx:2: Unsupported .version 99.0; current version is '")


@pytest.mark.parametrize("text", ["", "garbage", "// .target sm_80\n"])
def test_text_that_is_no_ptx(tmp_path, text):
    assert refusal(ptx(tmp_path, text)) == "add.ptx: not a PTX module: it has no '.target'"


def test_an_architecture_that_the_linker_does_not_know(tmp_path, monkeypatch):
    with pytest.raises(UsageError, match="unknown architecture 'sm_42'"):
        compile_one(ptx(tmp_path, ADD, "sm_42"))
    monkeypatch.setitem(arch.ARCHS, "sm_42", arch.Arch("sm_42", (4, 2), "of no chip"))
    with pytest.raises(UsageError, match=r"nvJitLink \d+\.\d+ does not know sm_42"):
        compile_one(ptx(tmp_path, ADD, "sm_42"))


def test_a_language_without_a_compiler(tmp_path):
    with pytest.raises(UsageError, match="no compiler for language 'spirv'; there are: cuda, ptx, mlir"):
        compile_one(Request("spirv", tmp_path / "k.spirv", "sm_90a", ("gemm",)))


@pytest.mark.parametrize(("module", "wheel"), [(nvrtc, "nvidia-cuda-nvrtc"), (nvjitlink, "nvidia-nvjitlink")])
def test_a_missing_library_names_its_wheel(monkeypatch, module, wheel):
    from cuda import pathfinder

    def absent(name):
        raise pathfinder.DynamicLibNotFoundError(f"lib{name} not found\nand where it was looked for")

    monkeypatch.setattr(pathfinder, "load_nvidia_dynamic_lib", absent)
    with pytest.raises(MissingError, match=f"pip install '{wheel}") as caught:
        module.bindings()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("module", [nvrtc, nvjitlink])
def test_missing_bindings_name_the_extra(monkeypatch, module):
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    with pytest.raises(MissingError, match=r"pip install 'cuda-python==13"):
        module.bindings()


def test_sass_of_a_cubin(tmp_path):
    if sass.disassembler() is None:
        pytest.skip("no nvdisasm")
    counted = sass.instructions(sass.sass(compile_one(cuda(tmp_path, SCALE, FACTOR=3)).cubin))
    wanted = ("LDG", "FMUL", "STS", "BAR.SYNC", "LDS", "STG", "EXIT")
    assert [opcode for opcode in wanted if not sass.has(counted, opcode)] == []
    with pytest.raises(MissingError, match="cannot read this cubin"):
        sass.sass(b"not a cubin")


@pytest.mark.skipif(sass.disassembler() is None, reason="no nvdisasm")
@pytest.mark.parametrize("target", ["sm_75", "sm_80", "sm_90a", "sm_100a", "sm_120"])
def test_instructions_read_together_are_those_of_each_listing(tmp_path, target):
    two = SCALE + 'extern "C" __global__ void other(float* y) { y[threadIdx.x] = __sinf(y[0]); }'
    cubins = [
        compile_one(cuda(tmp_path, text, target, FACTOR=factor)).cubin for text, factor in ((two, 3), (SCALE, "y[9]"))
    ]
    counted = sass.instructions_of_all(cubins, target)
    assert counted == [sass.instructions(sass.sass(cubin)) for cubin in cubins]
    assert counted[0] != counted[1]


@pytest.mark.skipif(sass.disassembler() is None, reason="no nvdisasm")
def test_machine_code_that_cannot_be_read_is_one_line(tmp_path):
    cubin = compile_one(cuda(tmp_path, SCALE, "sm_90a", FACTOR=3)).cubin
    with pytest.raises(MissingError, match=r"nvdisasm cannot read this cubin \(exit code \d+\): .*SM00"):
        sass.instructions_of_all([cubin], "sm_00")


def test_a_missing_disassembler_names_its_wheel(monkeypatch):
    monkeypatch.setattr(sass, "disassembler", lambda: None)
    with pytest.raises(MissingError, match="pip install nvidia-cuda-nvdisasm"):
        sass.sass(b"")


@pytest.mark.parametrize(("release", "told"), [((12, 8), False), ((12, 9), True), ((13, 0), True)])
def test_the_compilers_own_cache_is_left_out_where_there_is_one(tmp_path, monkeypatch, release, told):
    """What comes from there is silent about registers and spills."""
    request = cuda(tmp_path, SCALE, FACTOR=2)
    monkeypatch.setattr(nvrtc, "version", lambda: release)
    assert ("--no-cache" in nvrtc.compile_options(request)) == told

    class Linker:
        nvJitLinkError = RuntimeError  # noqa: N815
        version = staticmethod(lambda: release)

        @staticmethod
        def create(count, options):
            assert count == len(options)
            assert ("-no-cache" in options) == told
            raise RuntimeError

    with pytest.raises(UsageError):
        nvjitlink.link(Linker, ADD, request.arch, "add.ptx")


def test_a_compiler_that_is_silent_about_a_kernel_is_an_error(tmp_path):
    request = cuda(tmp_path, SCALE, FACTOR=2)
    ptx = compile_one(request).ptx
    with pytest.raises(CompileError, match=r"scale\.cu: ptxas does not say what kernel 'scale' takes"):
        nvrtc.entries(request, ptx, "")
