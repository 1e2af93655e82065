"""Main loops, found in machine code, PTX and CUDA C++, and their instructions counted."""

import json
import re

import pytest

from lowlevel import catalog, cli, paths
from lowlevel.commands import study_side
from lowlevel.study import loops, source_loop
from lowlevel.study.classes import class_of, mix, table
from lowlevel.study.listing import read_ptx, read_sass
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


def found_in(listing: str) -> list[str]:
    """The opcodes of the main loop of a SASS listing."""
    return [i.opcode for i in loops.main_loop(read_sass(listing, ["kernel.cu"])).instructions]


class TestSass:
    def test_the_innermost_loop_that_multiplies_most(self):
        loop = loops.main_loop(read_sass(LISTING, ["kernel.cu"]))
        assert [i.opcode for i in loop.instructions] == ["FFMA", "FFMA", "BRA"]
        assert loop.of == 2

    def test_lines_are_those_of_the_files_asked_for(self):
        code = read_sass(LISTING, ["kernel.cu"])
        assert [[line for _, line in i.places] for i in code.instructions[:4]] == [[3], [7], [5], [5]]
        code = read_sass(LISTING, ["kernel.cu", "header.cuh"])
        assert code.instructions[1].places == (("header.cuh", 9), ("kernel.cu", 7))

    def test_a_loop_that_waits_does_not_hide_the_one_around_it(self):
        waits = LISTING.replace("FFMA R3, R2, R2, R3 ;\n        /*0030*/", "NANOSLEEP ;\n        /*0030*/")
        waits = waits.replace("@!P1 BRA `(.L_x_3)", "NOP")
        assert found_in(waits) == ["LDS", "NANOSLEEP", "BRA", "FFMA", "FFMA", "NOP", "BRA"]

    def test_a_loop_through_a_tile_is_a_part_of_the_one_that_brings_the_tile(self):
        brings = LISTING.replace("LDS R2, [R1]", "LDG.E R2, [R1]")
        assert found_in(brings) == ["LDG.E", "FFMA", "BRA", "FFMA", "FFMA", "BRA", "BRA"]
        both = brings.replace("FFMA R3, R2, R2, R3 ;\n        /*0030*/", "BAR.SYNC 0x0 ;\n        /*0030*/")
        assert found_in(both) == ["LDG.E", "BAR.SYNC", "BRA", "FFMA", "FFMA", "BRA", "BRA"]
        inner = brings.replace("FFMA R3, R2, R2, R3 ;\n        /*0050*/", "LDG.E R2, [R1] ;\n        /*0050*/")
        assert found_in(inner) == ["LDG.E", "FFMA", "BRA"]

    def test_tensor_cores_count_before_other_multiplications(self):
        mma = LISTING.replace("FFMA R3, R2, R2, R3 ;\n        /*0030*/", "HMMA.16816 R3, R2, R2 ;\n        /*0030*/")
        assert found_in(mma) == ["HMMA.16816", "BRA"]

    def test_of_equals_the_shortest(self):
        equal = LISTING.replace("/*0050*/                   FFMA", "/*0050*/                   FADD")
        assert found_in(equal) == ["FFMA", "BRA"]

    def test_a_slow_path_behind_the_kernel_that_jumps_into_a_loop_makes_no_other(self):
        text = LISTING.replace("/*0040*/                   FFMA", "/*0040*/   @P2 BRA `(.L_x_5);\n /*0045*/ FFMA")
        text = text.replace("        /*0050*/", ".L_x_6:\n        /*0050*/")
        slow = "\n.L_x_5:\n /*00a0*/ FFMA R3, R2, R2, R3;\n /*00b0*/ BRA `(.L_x_6);\n"
        code = read_sass(text.replace("/*0060*/", "/*0055*/ FFMA R4, R2, R2, R4;\n /*0060*/") + slow)
        loop = loops.main_loop(code)
        assert [i.opcode for i in loop.instructions] == ["BRA", "FFMA", "FFMA", "FFMA", "BRA", "FFMA", "BRA"]
        assert [len(run) for run in loop.runs] == [5, 2]
        assert "EXIT" not in [i.opcode for i in loop.instructions]

    def test_a_program_without_a_loop_has_none(self):
        straight = "\n".join(line for line in LISTING.splitlines() if "L_x_1)" not in line and "L_x_2)" not in line)
        assert loops.main_loop(read_sass(straight.replace("@!P1 BRA `(.L_x_3)", "NOP"))) is None
        assert loops.main_loop(read_sass("")) is None

    def test_what_closes_a_loop_is_its_last_branch_backwards(self):
        loop = loops.main_loop(read_sass(LISTING))
        assert loop.closing.text == "@!P1 BRA `(.L_x_3)"


PTX = """\
.visible .entry first(
    .param .u64 A)
{
    .reg .b32 %a;  mov.u32 %a, 1;     // a loop? no: bra again;
    ld.global.b32 %a, [%b];
again:
    mul.wide.s32 %b, %a, %a;  add.s32 %a, %a, 1; /* two
    and a comment */ @%p bra again;
    ret;
}
.visible .entry second(
    .param .u64 A)
{
next_pass:                            // passes that only copy come back from the middle
    @%slow bra slowly;
    cp.async.cg.shared.global [%a], [%b], 16;
    bra copied;
slowly:
    ld.global.b16 %a, [%b];
    @%more bra.uni slowly;
copied:
    @%filling bra.uni next_pass;
    { .reg .pred done; again: mbarrier.try_wait.parity.shared::cta.b64 done, [%a], 1; @!done bra again; }
    { .reg .pred done; again: mbarrier.try_wait.parity.shared::cta.b64 done, [%a], 1; @!done bra again; }
    mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32
        {%x, %y}, {%a}, {%b},
        {%x, %y};
    fma.rn.f32 %x, %x, %x, %x;  fma.rn.f32 %y, %y, %y, %y;
    bra next_pass;
}
"""


class TestPtx:
    def test_statements_go_on_over_lines_and_share_them(self):
        code = read_ptx(PTX, "first")
        words = ["mov.u32", "ld.global.b32", "mul.wide.s32", "add.s32", "bra", "ret"]
        assert [i.opcode for i in code.instructions] == words
        assert [(i.line, i.last_line) for i in code.instructions[2:5]] == [(6, 6), (6, 6), (7, 7)]
        mma = next(i for i in read_ptx(PTX, "second").instructions if i.on_tensor_cores)
        assert mma.last_line - mma.line == 2

    def test_the_loop_is_the_one_with_the_multiplications_and_not_a_small_one_inside(self):
        loop = loops.main_loop(read_ptx(PTX, "second"))
        assert loop.instructions[0].text == "@%slow bra slowly;"
        assert loop.instructions[-1].text == "bra next_pass;"
        assert sum(i.multiplies for i in loop.instructions) == 3
        assert loop.of == 1

    def test_labels_in_braces_are_known_only_there(self):
        code = read_ptx(PTX, "second")
        waits = [i for i, instruction in enumerate(code.instructions) if instruction.opcode.startswith("mbarrier")]
        assert [code.targets[i + 1] for i in waits] == waits

    def test_a_kernel_ends_where_its_braces_do(self):
        text = ".entry one()\n{\n{\n.reg .pred p;\n}\nret;\n}\n.entry two()\n{\nexit;\n}\n"  # inline assembly's own
        assert [i.opcode for i in read_ptx(text, "one").instructions] == ["ret"]
        assert [i.opcode for i in read_ptx(text, "two").instructions] == ["exit"]

    def test_a_loop_that_is_entered_at_its_end(self):
        text = "bra test;\nbody:\nfma.rn.f32 %x, %x, %x, %x;\ntest:\nsetp.lt.s32 %p, %a, %b;\n@%p bra body;\nret;\n"
        assert [i.opcode for i in loops.main_loop(read_ptx(text)).instructions] == ["fma.rn.f32", "setp.lt.s32", "bra"]


def _code(line: str) -> str:
    """A line of PTX without its number."""
    return re.sub(r"^ *\d+ ", "", line).strip()


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

    @staticmethod
    def found(closing: int, *work: int) -> tuple[int, int] | None:
        place = source_loop.main_loop({"k.cu": SOURCE}, [("k.cu", closing)], [[("k.cu", line)] for line in work])
        return place and place[1:]

    def test_the_statement_whose_branch_it_is(self):
        assert self.found(2, *[6] * 10) == (2, 8)
        assert self.found(6, *[6] * 10) == (6, 6)
        assert self.found(9, 9) == (9, 9)

    def test_a_branch_elsewhere_does_not_count(self):
        assert self.found(9, *[6] * 9, 7) == (6, 6)
        assert self.found(1, *[6] * 5, *[7] * 5) == (2, 8)
        assert self.found(2, 1) is None

    def test_mlir_stands_beside_what_it_becomes(self):
        found = side("mlir:gemm/14[bf16]", "sm_80")
        source, ptx, machine = found.columns
        assert source.title.startswith("MLIR: mlir/gemm/14_wide.mlir, lines ")
        assert "nvvm.mma.sync" in "".join(source.lines)
        assert "nvvm.cp.async.shared.global" in "".join(source.lines)  # not the loop of elements
        assert sum("mma.sync" in line for line in ptx.lines) == 128
        assert "SASS of mlir:gemm/14_wide[bf16,NT" in machine.title
        assert [counted["tensor cores"] for counted in found.mixes.values()] == [128]

    def test_mlir_for_hopper(self):
        source, ptx, _ = side("mlir:gemm/22[bf16]", "sm_90a").columns
        assert "nvvm.wgmma.mma_async" in "".join(source.lines)
        products = [line for line in ptx.lines if "wgmma.mma_async" in line]
        assert len(products) == 4
        assert all(re.search(r"\{%\w+, %\w+, \.\.\. %\w+\}", line) for line in products)
        assert max(map(len, ptx.lines)) <= 140

    def test_a_loop_in_a_header_is_inside_the_one_that_calls_it(self):
        sources = {"k.cu": SOURCE, "h.cuh": "\n" * 20 + SOURCE}
        work = [[("math.cuh", 3), ("h.cuh", 26), ("k.cu", 9)]] * 4
        assert source_loop.main_loop(sources, [("h.cuh", 22), ("k.cu", 9)], work) == ("h.cuh", 22, 28)
        assert source_loop.main_loop(sources, [("k.cu", 9)], work) == ("k.cu", 9, 9)
        assert source_loop.main_loop(sources, [], work) is not None


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
        for column in found.columns:
            assert column.lines != ("no loop",)
        source, ptx, _ = found.columns
        loop = r"(for \((int \w+ = .*|; .*)(\+\+\w+|\w+ \+= BK)(, at\.\w+\(\))?\) .*|.*scf\.for .*)$"
        assert re.match(rf" *\d+  +{loop}", source.lines[0])
        assert any(re.match(r"(@!?%\w+ )?(mma|wmma|wgmma|fma)\b", _code(line)) for line in ptx.lines)
        assert re.match(r"(@!?%\w+ +)?bra", _code(ptx.lines[-1]))
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

    def test_a_loop_in_a_header_is_shown_with_its_file_and_lines(self):
        source, ptx, _ = side("ptx:gemm/16", "sm_80").columns
        assert re.match(r"CUDA C\+\+: cu/include/split_loop.cuh, lines \d+ to \d+, for cu/gemm/16", source.title)
        header = (paths.kernel_root() / "cu/include/split_loop.cuh").read_text().splitlines()
        assert all(header[int(line[:4]) - 1] == line[5:] for line in source.lines)
        assert sum("mma.sync" in line for line in ptx.lines) == 16
        shown = side("cuda:gemm/16", "sm_80").columns[2].lines
        numbers = [int(line[:4]) for line in shown if "HMMA" in line]
        first, last = (int(line[:4]) for line in (source.lines[0], source.lines[-1]))
        assert len(numbers) == 64  # 8 steps of k, 2 x 4 of mma's 16 x 8
        assert all(first <= number <= last for number in numbers)

    def test_a_bracket_chooses(self):
        _, ptx, machine = side("gemm/13[fp16,TN]", "sm_80").columns
        assert ptx.title == "PTX of the compiler"
        assert "SASS of cuda:gemm/13_multistage[fp16,TN," in machine.title
        found = side("gemm/13", "sm_80")
        assert "PTX by hand" in found.columns[1].title
        assert len({name.partition("[")[2] for name in found.mixes}) == 1

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
            (["gemm/13[s9]"], "no variant 'gemm/13[s9]': no 's9'; a bracket takes bf16, "),
            (["gemm/13[tf32,NN]"], "none has all of them"),
            (["gemm/02", "--arch", "sm_1"], "unknown architecture 'sm_1'"),
        ],
    )
    def test_wrong_words_are_one_line(self, capsys, words, said):
        assert cli.main(["study", "side", *words]) == 2
        err = capsys.readouterr().err
        assert said in err
        assert len(err.splitlines()) == 1
