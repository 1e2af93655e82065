"""Every kernel, compiled for every architecture asked for: no spills, no unexplained remark, the right instructions."""

import re

import pytest

from lowlevel import catalog, paths, static
from lowlevel.catalog.entry import LANGUAGES, Twin
from lowlevel.contender import EPILOGUE_PARAMETER
from lowlevel.errors import CompileError
from lowlevel.toolchain import sass, signature
from lowlevel.toolchain.arch import capability
from lowlevel.toolchain.binary import Request
from lowlevel.toolchain.build import build, build_all

ROOT = paths.kernel_root()


@pytest.fixture(scope="session")
def counted(built):
    """(variant's name, arch) -> its opcodes, all disassembled together."""
    defaults = {variant.name: variant for variant in catalog.variants()}
    keys = [key for key in built if key[0] in defaults]
    found = static.counted_instructions([(defaults[key[0]], built[key]) for key in keys])
    return dict(zip(keys, found, strict=True))


@pytest.fixture
def binary(built, variant, arch, seen):
    return _of(built, variant, arch, seen)


def _of(built, variant, arch, seen):
    found = built[variant.name, arch]
    seen(variant, arch, "failed" if isinstance(found, CompileError) else "compiled")
    if isinstance(found, Exception):
        raise found
    return found


def test_compiles_clean(binary, variant):
    spills = sum(entry.resources.spills for entry in binary.entries.values())
    assert spills <= variant.kernel.expect.spills
    assert static.unexplained(variant, binary) == ()


def test_every_other_configuration_compiles_clean(built, other, arch, seen):
    test_compiles_clean(_of(built, other, arch, seen), other)


def test_parameters_match_the_catalog(binary, variant):
    for step in variant.kernel.steps:
        assert len(binary.entries[step.entry].parameters) == len(step.params)


def test_instructions_are_there(binary, variant, arch, counted):
    if sass.disassembler() is None:
        pytest.skip("no nvdisasm")
    found, missing = static.expected_instructions(variant, binary.arch, counted[variant.name, arch])
    assert missing == ()
    assert bool(found) == any(capability(known) <= capability(arch) for known in variant.kernel.expect.sass)


def test_every_file_has_an_entry_and_every_entry_a_file():
    files = {
        p.relative_to(ROOT).as_posix()
        for folder, ending in LANGUAGES.values()
        for p in (ROOT / folder).rglob(f"*{ending}")
        if p.relative_to(ROOT).parts[1] not in ("include", "support")
    }
    assert files == {kernel.path for kernel in catalog.kernels()}


def test_entries_are_well_formed():
    for kernel in catalog.kernels():
        assert re.fullmatch(r"\w+/\w+", kernel.name)
        assert "\n" not in catalog.idea(kernel)
        assert kernel.expect.sass, f"{kernel.label} says no instruction that it is about"
        if isinstance(kernel.idea, Twin):
            assert any(k.name == kernel.name and k.language == kernel.idea.language for k in catalog.kernels())


def test_row_names_are_unique_and_found_again():
    names = [variant.name for variant in catalog.variants()]
    assert len(set(names)) == len(names)
    for variant in catalog.variants():
        assert catalog.find(variant.name) == variant


@pytest.mark.smoke12
@pytest.mark.parametrize("kernel", [k for k in catalog.kernels() if k.language == "ptx"], ids=lambda k: k.name)
def test_a_ptx_file_claims_the_lowest_version_that_assembles(kernel, tmp_path):
    text = (ROOT / kernel.path).read_text()
    claimed = signature.version(text)
    assert f"{claimed[0]}.{claimed[1]}" == kernel.expect.version
    assert signature.target(text) == kernel.archs[0]
    older = {(6, 3): "6.2", (7, 0): "6.5", (7, 4): "7.3", (8, 0): "7.8"}[claimed]
    lowered = tmp_path / "lowered.ptx"
    lowered.write_text(re.sub(r"\.version \S+", f".version {older}", text))
    with pytest.raises(CompileError):
        build(Request("ptx", lowered, kernel.archs[0], (kernel.entry,)))


@pytest.mark.smoke12
@pytest.mark.parametrize("kernel", catalog.kernels(), ids=lambda k: k.label)
def test_one_build_of_every_kernel(kernel):
    """What the CUDA 12 packages repeat."""
    binary = build(catalog.request(kernel.variants()[0], kernel.archs[-1]))
    assert {step.entry for step in kernel.steps} <= set(binary.entries)
    assert binary.cubin[:4] == b"\x7fELF"


@pytest.mark.parametrize("epilogue", ["bias", "bias_relu", "bias_silu", "residual"])
@pytest.mark.parametrize("arch", ["sm_75", "sm_90"])
def test_a_separate_epilogue_moves_16_bytes_and_takes_what_it_is_passed(epilogue, arch):
    source, define = ROOT / "cu/support/finish.cu", (f"EPILOGUE_{epilogue.upper()}", "1")
    binary = build(Request("cuda", source, arch, ("finish",), (define,)))
    assert binary.advisories == ()
    taken = binary.entries["finish"]
    assert [p.size for p in taken.parameters] == [8, 4, 4, 4, EPILOGUE_PARAMETER.itemsize]
    assert taken.resources.spills == 0
    assert {"ld.global.v4.f32", "st.global.v4.f32"} <= set(binary.ptx.split())


def test_support_kernels_compile():
    outputs = ("FP32", "FP16", "BF16", "INT32")
    compare = ROOT / "cu/support/compare.cu"
    requests = [Request("cuda", compare, "sm_80", ("compare",), ((f"OUT_{o}", "1"),)) for o in outputs]
    requests.append(Request("cuda", ROOT / "cu/support/clock.cu", "sm_80", ("clock_probe",)))
    requests.append(Request("cuda", ROOT / "cu/support/same.cu", "sm_80", ("same",)))
    requests.append(Request("cuda", ROOT / "cu/support/gpc_probe.cu", "sm_90", ("gpc_probe",)))
    for binary in build_all(requests):
        assert not isinstance(binary, Exception), binary
        assert binary.advisories == ()
