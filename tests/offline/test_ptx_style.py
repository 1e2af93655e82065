"""Hand-written PTX is written to be read: headers, a register dictionary, registers named for their role."""

import re

import pytest

from lowlevel import catalog, paths

KERNELS = [k for k in catalog.kernels() if k.language == "ptx"]


def read(kernel) -> str:
    return (paths.kernel_root() / kernel.path).read_text()


def header(text: str) -> str:
    """The comment block before `.version`."""
    return text.split(".version")[0]


def declared(text: str) -> set[str]:
    return {r for line in re.findall(r"\.reg\s+\.\w+\s+([^;]+);", text) for r in re.findall(r"%\w+", line)}


def explained(text: str) -> set[str]:
    """Registers that the header's dictionary names, at the start of its lines."""
    block = header(text).split("// Registers")[1]
    return {r for line in block.splitlines() for r in re.findall(r"%\w+", re.split(r"\s{3,}(?=\w)", line[5:])[0])}


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.name)
class TestEveryFile:
    def test_no_register_is_a_number(self, kernel):
        anonymous = re.findall(r"%(?:r|rd|f|fd|p|rs|h)\d+\b", read(kernel))
        assert not anonymous, f"name registers for their role: {sorted(set(anonymous))}"

    def test_the_dictionary_names_every_register_and_no_other(self, kernel):
        assert explained(read(kernel)) == declared(read(kernel))

    def test_every_register_is_used(self, kernel):
        code = re.sub(r"//[^\n]*", "", read(kernel).split(".address_size")[1])
        for register in declared(read(kernel)):
            assert len(re.findall(rf"{register}\b", code)) >= 2, f"{register} is declared and not used"

    def test_the_header_tells_a_newcomer_what_to_expect(self, kernel):
        for word in ("Idea", "Shared", "Limit", "Registers"):
            assert f"// {word}" in header(read(kernel)) or f"//   {word}" in header(read(kernel)), word

    def test_every_barrier_says_why(self, kernel):
        lines = read(kernel).splitlines()
        for i, line in enumerate(lines):
            if re.match(r"\s*(bar\.|barrier\.|fence|membar)", line):
                assert any("//" in before for before in (line, *lines[max(0, i - 3) : i])), f"line {i + 1}"

    def test_it_cites_the_manual(self, kernel):
        assert "PTX ISA" in read(kernel) or (kernel.rung.startswith("01") and kernel.operation != "gemm")

    def test_lines_fit(self, kernel):
        assert max(map(len, read(kernel).splitlines())) <= 120
        assert read(kernel).isascii()


def test_the_lint_would_find_an_anonymous_register():
    assert declared(".reg .s32 %r12, %k;") == {"%r12", "%k"}
    assert re.findall(r"%(?:r|rd|f|fd|p|rs|h)\d+\b", "add.s32 %r12, %k, 1; ld.f32 %a0, [%a_ptr];") == ["%r12"]
