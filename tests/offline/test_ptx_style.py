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


def registers(text: str) -> set[str]:
    """The registers that a text names. `%acc<64>` is 64 of them, %acc0 .. %acc63, as wgmma's lists of sums want it."""
    named = set()
    for name, count in re.findall(r"%(\w+)(?:<(\d+)>)?", text):
        named |= {f"%{name}{i}" for i in range(int(count))} if count else {f"%{name}"}
    return named


def declared(text: str) -> set[str]:
    return set().union(*map(registers, re.findall(r"\.reg\s+\.\w+\s+([^;]+);", text)))


def explained(text: str) -> set[str]:
    """Registers that the header's dictionary names, at the start of its lines."""
    block = header(text).split("// Registers")[1]
    return set().union(*(registers(re.split(r"\s{3,}(?=\w)", line[5:])[0]) for line in block.splitlines()))


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.name)
class TestEveryFile:
    def test_no_register_is_a_number(self, kernel):
        anonymous = re.findall(r"%(?:r|rd|f|fd|p|rs|h)\d+\b", read(kernel))
        assert not anonymous, f"name registers for their role: {sorted(set(anonymous))}"

    def test_the_dictionary_names_every_register_and_no_other(self, kernel):
        assert explained(read(kernel)) == declared(read(kernel))

    def test_every_register_is_used(self, kernel):
        code = re.sub(r"//[^\n]*|\.reg[^;]*;", "", read(kernel).split(".address_size")[1])
        unused = declared(read(kernel)) - set(re.findall(r"%\w+", code))
        assert not unused, f"declared and not used: {sorted(unused)}"

    def test_the_header_tells_a_newcomer_what_to_expect(self, kernel):
        for word in ("Idea", "Shared", "Limit", "Registers"):
            assert f"// {word}" in header(read(kernel)) or f"//   {word}" in header(read(kernel)), word

    def test_every_barrier_says_why(self, kernel):
        lines = read(kernel).splitlines()
        for i, line in enumerate(lines):
            if re.match(r"\s*(@!?%\w+ )?(bar\.|barrier\.|fence|membar|wgmma\.(fence|wait)|mbarrier\.\w+_wait)", line):
                assert any("//" in before for before in (line, *lines[max(0, i - 3) : i])), f"line {i + 1}"

    def test_it_cites_the_manual(self, kernel):
        assert "PTX ISA" in read(kernel) or (kernel.rung.startswith("01") and kernel.operation != "gemm")

    def test_lines_fit(self, kernel):
        assert max(map(len, read(kernel).splitlines())) <= 120
        assert read(kernel).isascii()


def test_the_lint_would_find_an_anonymous_register():
    assert declared(".reg .s32 %r12, %k;") == {"%r12", "%k"}
    assert re.findall(r"%(?:r|rd|f|fd|p|rs|h)\d+\b", "add.s32 %r12, %k, 1; ld.f32 %a0, [%a_ptr];") == ["%r12"]


def test_a_range_is_its_registers():
    text = "// Registers\n//   %acc<3> %k     sums; k\n.version 8.0\n.reg .f32 %acc<3>;\n.reg .s32 %k;"
    assert explained(text) == declared(text) == {"%acc0", "%acc1", "%acc2", "%k"}
    assert declared(".reg .f32 %acc<12>;") > declared(text) - {"%k"}
