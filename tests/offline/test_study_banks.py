"""Bank conflicts: the rule against counted accesses, layouts against known figures, and the command."""

import importlib.util
import json

import pytest

from lowlevel import cli, paths
from lowlevel.errors import UsageError
from lowlevel.study import bank_counts, bank_rules, banks, layout
from lowlevel.study.bank_rules import CANDIDATES, RULE
from lowlevel.study.layout import Layout, Walk
from lowlevel.toolchain import sass
from lowlevel.toolchain.binary import Request
from lowlevel.toolchain.build import build

ROOT = paths.kernel_root()
FIXTURE = ROOT / "tests" / "fixtures" / "banks.json"
LANES = range(32)


def run(capsys, *words) -> tuple[int, str, str]:
    code = cli.main(["study", "banks", *words])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def recorder():
    spec = importlib.util.spec_from_file_location("record_banks", ROOT / "tools" / "record_banks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_rule_gives_what_was_counted():
    assert FIXTURE.is_file(), f"{FIXTURE.name} is missing: record it by tools/record_banks.py on a GPU"
    counted = bank_counts.read(json.loads(FIXTURE.read_text()))
    assert len(counted) >= 60
    assert bank_counts.misfits(counted) == []


def test_the_recorded_patterns_are_those_of_the_tool():
    assert FIXTURE.is_file(), f"{FIXTURE.name} is missing: record it by tools/record_banks.py on a GPU"
    counted = bank_counts.read(json.loads(FIXTURE.read_text()))
    assert [(c.name, c.access, list(c.addresses)) for c in counted] == recorder().patterns()


class TestPatterns:
    def test_there_are_enough_of_each_access_and_each_is_another(self):
        patterns = recorder().patterns()
        assert len(patterns) >= 80
        assert len({name for name, _, _ in patterns}) == len(patterns)
        for access in banks.ACCESSES:
            mine = [tuple(a) for _, found, a in patterns if found == access]
            assert len(mine) >= 16, access

    def test_every_address_is_aligned_and_inside(self):
        tool = recorder()
        for name, access, addresses in tool.patterns():
            width = banks.ACCESSES[access].width
            assert len(addresses) == 32, name
            for address in addresses:
                assert address is None or (address % width == 0 and 0 <= address <= tool._MEMORY - width), name
            if access.startswith("ldmatrix"):
                assert None not in addresses, name

    @pytest.mark.parametrize("access", ["ld.8", "ld.16", "st.8", "st.16", "ldmatrix.x4"])
    def test_they_tell_all_candidate_rules_apart(self, access):
        patterns = [a for _, found, a in recorder().patterns() if found == access]
        said = {name: tuple(banks.wavefronts(a, access, rule) for a in patterns) for name, rule in CANDIDATES.items()}
        # of 8 bytes a lane, a half of the warp is the unit: fixed, halves and fused are one rule
        assert len(set(said.values())) == len(said) - 2 * access.endswith(".8")


@pytest.mark.skipif(sass.disassembler() is None, reason="no nvdisasm")
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_a_counted_kernel_has_one_access_and_it_is_that_one(arch):
    kernels = recorder().KERNELS
    binary = build(Request("cuda", ROOT / "cu/support/bank_accesses.cu", arch, tuple(kernels.values())))
    assert binary.advisories == ()
    listing = sass.sass(binary.cubin)
    opcodes = {"ld.4": "LDS", "ld.8": "LDS.64", "ld.16": "LDS.128", "st.4": "STS", "st.8": "STS.64", "st.16": "STS.128"}
    opcodes |= {f"ldmatrix.x{n}": "LDSM.16.M88" + (f".{n}" if n > 1 else "") for n in (1, 2, 4)}
    for access, kernel in kernels.items():
        counted = sass.instructions(sass.function_text(listing, kernel))
        shared = {opcode: n for opcode, n in counted.items() if opcode.startswith(("LDS", "STS"))}
        assert shared == {opcodes[access]: 1}


def test_a_misfit_is_told():
    counted = [bank_counts.Counted("stride 1", "ld.4", tuple(4 * lane for lane in LANES), 2)]
    assert bank_counts.misfits(counted) == ["stride 1: 2 counted, 1 by whole"]


class TestTheCounter:
    def test_words_of_different_banks_take_one_pass_and_a_broadcast_too(self):
        assert banks.wavefronts([4 * lane for lane in LANES], "ld.4") == 1
        assert banks.wavefronts([64] * 32, "ld.4") == 1
        assert banks.wavefronts([8 * lane for lane in LANES], "ld.4") == 2
        assert banks.wavefronts([128 * lane for lane in LANES], "ld.4") == 32

    def test_wide_accesses_move_128_bytes_a_pass(self):
        assert banks.wavefronts([8 * lane for lane in LANES], "st.8") == 2
        assert banks.wavefronts([16 * lane for lane in LANES], "st.16") == 4
        assert banks.wavefronts([128 * lane for lane in LANES], "ld.16") == 32

    def test_only_the_lanes_that_take_part_count(self):
        assert banks.wavefronts([128 * lane if lane < 5 else None for lane in LANES], "ld.4") == 5
        assert banks.wavefronts([None] * 32, "ld.4") == 0

    def test_ldmatrix_x1_reads_the_rows_of_eight_lanes(self):
        assert banks.wavefronts([64 * lane for lane in LANES], "ldmatrix.x1") == 4
        assert banks.wavefronts([64 * lane for lane in LANES], "ldmatrix.x2") == 8
        assert banks.wavefronts([64 * lane for lane in LANES], "ldmatrix.x4") == 16

    def test_who_collides_is_told(self):
        (phase,) = banks.phases([64 * lane for lane in range(8)], "ldmatrix.x1")
        assert list(banks.told(phase)) == [
            "banks 0-3: 4 words, for lanes 0 | 2 | 4 | 6",
            "banks 16-19: 4 words, for lanes 1 | 3 | 5 | 7",
        ]

    @pytest.mark.parametrize(
        ("addresses", "access", "said"),
        [
            ([2] * 32, "ld.4", "byte 2 is no multiple of 4"),
            ([-4] * 32, "ld.4", "byte -4"),
            ([0] * 8, "ldmatrix.x2", "takes 16 addresses, 8 given"),
            ([0] * 32, "ld.3", "no access 'ld.3'"),
        ],
    )
    def test_what_no_instruction_takes_is_refused(self, addresses, access, said):
        with pytest.raises(UsageError, match=said):
            banks.phases(addresses, access)


class TestCandidates:
    """What each says of accesses that tell them apart."""

    def test_pairs_that_share_an_address_join_their_groups(self):
        shared, own = [8 * (lane & ~1) for lane in LANES], [8 * lane for lane in LANES]
        assert banks.wavefronts(shared, "ld.8", bank_rules.paired) == 2  # 32 words, 16 of them asked for twice
        assert [len(group) for group in bank_rules.paired(shared, 8)] == [32]
        assert [len(group) for group in bank_rules.paired(own, 8)] == [16, 16]

    def test_packing_joins_what_takes_no_pass_more(self):
        alike = [16 * (lane % 8) for lane in LANES]
        assert banks.wavefronts(alike, "ld.16", bank_rules.fixed) == 4
        assert banks.wavefronts(alike, "ld.16", bank_rules.packed) == 1
        assert banks.wavefronts(alike, "ld.16", bank_rules.fused) == 2

    def test_together_only_the_worst_bank_counts(self):
        addresses = [128 * (lane % 16) + 64 * (lane // 16) for lane in LANES]
        assert banks.wavefronts(addresses, "ld.8", bank_rules.whole) == 16
        assert banks.wavefronts(addresses, "ld.8", bank_rules.fixed) == 32

    def test_every_access_has_a_rule(self):
        assert set(RULE) == set(banks.ACCESSES)
        assert set(RULE.values()) <= set(CANDIDATES.values())


#: Passes of one ldmatrix phase, 8 rows of 16 bytes, for a row's bytes, and the XOR.
SWIZZLES = [
    (32, "0", 2), (64, "0", 4), (128, "0", 8), (256, "0", 8),
    (32, "row % 2", 2), (64, "row % 4", 2), (128, "row % 8", 1), (256, "row % 8", 1),
    (32, "row / 4 % 2", 1), (64, "row / 2 % 4", 1),
]  # fmt: skip


class TestLayouts:
    @pytest.mark.parametrize(("row_bytes", "xor", "passes"), SWIZZLES)
    def test_swizzles_of_narrow_rows(self, row_bytes, xor, passes):
        tile = Layout(row_bytes, 16, 0, xor)
        addresses = Walk("rows", "lane", "0").addresses(tile, 8)
        assert banks.wavefronts(addresses, "ldmatrix.x1") == passes
        assert tile.strays() is None

    @pytest.mark.parametrize("row_bytes", [32, 64])
    def test_an_xor_of_three_bits_leaves_a_narrow_row(self, row_bytes):
        assert "data is overwritten" in Layout(row_bytes, 16, 0, "row % 8").strays()

    @pytest.mark.parametrize("pad", [16, 48])
    def test_an_odd_number_of_chunks_a_row_has_no_conflict(self, pad):
        tile = Layout(64, 16, pad)
        assert banks.wavefronts(Walk("rows", "lane", "0").addresses(tile, 8), "ldmatrix.x1") == 1

    def test_walks_cover_a_row(self):
        tile = Layout(128, 16)
        (walk,) = layout.walks(tile, "ldmatrix.x4")
        assert list(layout.starts(tile, walk, 32)) == [0, 2, 4, 6]
        along, down = layout.walks(Layout(128, 4), "ld.4")
        assert list(layout.starts(Layout(128, 4), along, 32)) == [0]
        assert list(layout.starts(Layout(128, 4), down, 32)) == list(range(32))

    @pytest.mark.parametrize(
        ("row_bytes", "pad", "xor", "said"),
        [(24, 0, "0", "no multiple of the 16"), (64, -16, "0", "a pad of -16"), (64, 0, "chunk", "no 'chunk'")],
    )
    def test_a_layout_that_is_none_is_refused(self, row_bytes, pad, xor, said):
        with pytest.raises(UsageError, match=said):
            Layout(row_bytes, 16, pad, xor)


class TestTheCommand:
    def test_a_layout(self, capsys):
        code, out, _ = run(capsys, "--row-bytes", "64", "--access", "ldmatrix", "--json")
        assert code == 0
        assert json.loads(out) == [
            {
                "access": "16 rows, 2 chunks, from chunk 0, 2",
                "wavefronts": 16,
                "without conflicts": 4,
                "by phase": [4, 4, 4, 4],
            }
        ]

    def test_its_cure(self, capsys):
        code, out, _ = run(capsys, "--row-bytes", "64", "--access", "ldmatrix", "--xor", "row / 2 % 4")
        assert code == 0
        assert "No conflict" in out

    def test_a_swizzle_that_loses_data_is_wrong(self, capsys):
        code, out, _ = run(capsys, "--row-bytes", "64", "--access", "ldmatrix", "--xor", "row % 8")
        assert code == 1
        assert "WRONG: 'row % 8' moves chunk 0 of row 4 to place 4" in out

    def test_one_access(self, capsys):
        code, out, _ = run(capsys, "--address", "128 * lane", "--access", "4")
        assert code == 0
        assert "lanes 0-31: 32 wavefronts" in out

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            (["--access", "4"], "give a layout"),
            (["--access", "4", "--address", "lane", "--row-bytes", "64"], "give a layout"),
            (["--access", "4", "--address", "lane"], "lane 1: byte 1 is no multiple of 4"),
            (["--access", "4", "--address", "4 * lane", "--pad", "4"], "belong to a layout"),
            (["--access", "4", "--address", "4 * lane", "--lanes", "33"], "--lanes 33: ld.4 has 32"),
            (["--access", "ldmatrix", "--row-bytes", "16"], "spans 2 chunks"),
            (["--access", "ldmatrix", "--row-bytes", "64", "--store"], "ldmatrix loads"),
            (["--access", "4", "--address", "open('x')"], "a formula has whole numbers"),
        ],
    )
    def test_wrong_words_are_one_line(self, capsys, words, said):
        code, _, err = run(capsys, *words)
        assert code == 2
        assert said in err
        assert len(err.splitlines()) == 1
