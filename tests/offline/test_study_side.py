"""Main loops, found in machine code, PTX and CUDA C++, and their instructions counted."""

import json

import pytest

from lowlevel import catalog, cli, paths
from lowlevel.commands import study_side
from lowlevel.study import loops, source_loop
from lowlevel.study.classes import class_of, mix, table
from lowlevel.study.side import Column, Side, side
from lowlevel.toolchain import sass

needs_nvdisasm = pytest.mark.skipif(sass.disassembler() is None, reason="no nvdisasm")

LISTING = """\
.text.gemm:
	//## File "/x/kernel.cu", line 3
        /*0000*/                   MOV R1, c[0x0][0x28] ;
.L_x_1:
	//## File "/x/header.cuh", line 9 inlined at "/x/kernel.cu", line 7
	//## File "/x/kernel.cu", line 7
        /*0010*/                   LDS R2, [R1] ;
.L_x_2:
	//## File "/x/kernel.cu", line 5
        /*0020*/                   FFMA R3, R2, R2, R3 ;
        /*0030*/              @P0 BRA `(.L_x_2) ;
.L_x_3:
        /*0040*/                   FFMA R3, R2, R2, R3 ;
        /*0050*/                   FFMA R3, R2, R2, R3 ;
        /*0060*/              @!P1 BRA `(.L_x_3) ;
        /*0070*/                   BRA `(.L_x_1) ;
        /*0080*/                   EXIT ;
.L_x_4:
        /*0090*/                   BRA `(.L_x_4);
"""


class TestSass:
    def test_the_innermost_loop_that_multiplies_most(self):
        loop = loops.main_loop(loops.read_sass(LISTING, "kernel.cu"))
        assert [i.opcode for i in loop.instructions] == ["FFMA", "FFMA", "BRA"]
        assert (loop.multiplies, loop.of) == (2, 2)

    def test_lines_are_those_of_the_source_and_not_of_a_header(self):
        code = loops.read_sass(LISTING, "kernel.cu")
        assert [i.lines for i in code.instructions[:4]] == [(3,), (7,), (5,), (5,)]

    def test_a_loop_that_waits_does_not_hide_the_one_around_it(self):
        waits = LISTING.replace("FFMA R3, R2, R2, R3 ;\n        /*0030*/", "NANOSLEEP ;\n        /*0030*/")
        waits = waits.replace("@!P1 BRA `(.L_x_3)", "NOP")
        loop = loops.main_loop(loops.read_sass(waits))
        assert loop.instructions[0].opcode == "LDS"
        assert loop.multiplies == 2

    def test_of_equals_the_shortest(self):
        equal = LISTING.replace("/*0050*/                   FFMA", "/*0050*/                   FADD")
        loop = loops.main_loop(loops.read_sass(equal))
        assert [i.opcode for i in loop.instructions] == ["FFMA", "BRA"]

    def test_a_program_without_a_loop_has_none(self):
        straight = "\n".join(line for line in LISTING.splitlines() if "L_x_1)" not in line and "L_x_2)" not in line)
        assert loops.main_loop(loops.read_sass(straight.replace("@!P1 BRA `(.L_x_3)", "NOP"))) is None


def test_ptx_loops_are_found_by_their_labels():
    text = "start:\n  mov.u32 %a, 1; // a loop? no\nagain:\n  fma.rn.f32 %x, %x, %x, %x;\n  mma.sync.x {%a},\n  {%b};\n"
    text += "  @%p bra.uni again;\n  ret;\n"
    loop = loops.main_loop(loops.read_ptx(text))
    assert [i.opcode for i in loop.instructions] == ["fma.rn.f32", "mma.sync.x", "bra.uni"]


SOURCE = """\
void kernel() {  // for (;;) {
    for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j)
#pragma unroll
            for (int k = 0; k < 4; ++k) x += "}"[0];
        y();
    }
    while (more()) z();
    do {
        z();
    } while (more());
}
"""


class TestSource:
    def test_loops_with_and_without_braces(self):
        assert source_loop.loops(SOURCE) == [(2, 8), (4, 6), (6, 6), (9, 9), (10, 12), (12, 12)]

    def test_the_smallest_that_covers_nearly_all(self):
        assert source_loop.main_loop(SOURCE, [(6,)] * 9 + [(7,)]) == (6, 6)
        assert source_loop.main_loop(SOURCE, [(6,)] * 5 + [(7,)] * 5) == (2, 8)
        assert source_loop.main_loop(SOURCE, [(99, 9)] * 3) == (9, 9)
        assert source_loop.main_loop(SOURCE, [(1,), ()]) is None


class TestClasses:
    @pytest.mark.parametrize(
        ("opcode", "name"),
        [
            ("HMMA.16816.F32.BF16", "tensor cores"),
            ("LDSM.16.M88.4", "matrix load from shared"),
            ("LDGSTS.E.BYPASS.128", "copy to shared"),
            ("LDG.E.128.CONSTANT", "load from global"),
            ("IMAD.MOV.U32", "moves"),
            ("IMAD.WIDE", "integers and addresses"),
            ("HFMA2.MMA", "moves"),
            ("WHATEVER.X", "others"),
        ],
    )
    def test_by_the_first_part_of_the_opcode(self, opcode, name):
        assert class_of(opcode) == name

    def test_a_table_adds_up(self):
        rows = table({"a": mix(["FFMA", "FFMA", "LDS", "NOP"]), "b": mix(["HMMA.1"])})
        assert rows == [
            {"instructions": "tensor cores", "a": 0, "b": 1},
            {"instructions": "multiply-add", "a": 2, "b": 0},
            {"instructions": "load from shared", "a": 1, "b": 0},
            {"instructions": "all", "a": 3, "b": 1},
        ]


@needs_nvdisasm
class TestTheLadder:
    @pytest.mark.parametrize("kernel", [k for k in catalog.kernels() if k.operation == "gemm"], ids=lambda k: k.label)
    def test_every_matmul_has_a_main_loop_that_multiplies(self, kernel):
        found = side(kernel.label, kernel.archs[-1])
        assert all(column.lines != ("no loop",) for column in found.columns)
        for counted in found.mixes.values():
            assert counted.get("multiply-add", 0) + counted.get("tensor cores", 0) >= 4

    def test_hand_written_ptx_stands_beside_its_twin(self):
        found = side("gemm/02", "sm_80")
        cuda, ptx, machine = found.columns
        assert "cu/gemm/02_tiled.cu, lines" in cuda.title
        assert "for (int k_block = 0;" in cuda.lines[0]
        assert "ptx/gemm/02_tiled.ptx, from line" in ptx.title
        assert ptx.lines[0].endswith("next_block:")
        assert ptx.lines[-1].split()[-2:] == ["bra", "next_block;"]
        assert "cuda:gemm/02_tiled" in machine.title
        source = (paths.kernel_root() / "ptx/gemm/02_tiled.ptx").read_text().splitlines()
        for line in ptx.lines:
            assert source[int(line[:4]) - 1] == line[5:]
        assert [counted["multiply-add"] for counted in found.mixes.values()] == [32, 32]

    def test_a_language_says_whose_code_is_shown(self):
        assert "PTX of the compiler" in side("cuda:gemm/02", "sm_80").columns[1].title
        assert "SASS of ptx:gemm/02" in side("ptx:gemm/02", "sm_80").columns[2].title


class TestTheCommand:
    FOUND = Side((Column("one", ("a", "b", "c")), Column("two", ("d",))), {})

    def test_narrow_text_goes_below_and_wide_text_beside(self):
        assert study_side.rendered(self.FOUND, None, 80) == "--- one\na\nb\nc\n\n--- two\nd"
        beside = study_side.rendered(self.FOUND, None, 141).splitlines()
        assert beside[2].split() == ["a", "|", "d"]
        assert len(beside) == 5

    def test_lines_are_cut(self):
        assert "... 2 more lines" in study_side.rendered(self.FOUND, 1, 80)

    @needs_nvdisasm
    def test_json(self, capsys):
        assert cli.main(["study", "side", "gemm/01", "--arch", "sm_80", "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert len(found["columns"]) == 3
        assert len(found["mixes"]) == 2

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            (["gemm/99"], "no variant 'gemm/99'"),
            (["gemm/0*"], "names several kernels"),
            (["gemm/02", "--arch", "sm_1"], "unknown architecture 'sm_1'"),
        ],
    )
    def test_wrong_words_are_one_line(self, capsys, words, said):
        assert cli.main(["study", "side", *words]) == 2
        err = capsys.readouterr().err
        assert said in err
        assert len(err.splitlines()) == 1
