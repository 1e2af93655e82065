"""wgmma's matrix descriptor: bits, rules, addresses, against what the hardware read; and the command."""

import dataclasses
import importlib.util
import json

import fake_warpgroup
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lowlevel import cli, paths
from lowlevel.errors import UsageError
from lowlevel.study import descriptor, swizzle, warpgroup
from lowlevel.study.descriptor import FIELDS, MAJORS, Descriptor, decode, encode
from lowlevel.toolchain.build import build_all

ROOT = paths.kernel_root()
FIXTURE = ROOT / "tests" / "fixtures" / "descriptors.json"

BYTES = st.integers(0, (1 << 14) - 1).map(lambda units: 16 * units)
DESCRIPTORS = st.builds(
    Descriptor, BYTES, BYTES, BYTES, st.sampled_from(descriptor.SWIZZLES), base_offset=st.integers(0, 7)
)


def run(capsys, *words) -> tuple[int, str, str]:
    code = cli.main(["study", "descriptor", *words])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


class TestBits:
    def test_a_known_word(self):
        """By hand: 0x4000 / 16 in bits 0 .. 13, 1 from bit 16, 64 from bit 32, mode 1 from bit 62."""
        it = Descriptor(start=0x4000, lbo=16, sbo=1024, swizzle="128B")
        assert it.word == 0x4000 // 16 | 1 << 16 | 64 << 32 | 1 << 62 == 0x4000004000010400
        assert Descriptor(0, 0, 0, "128B", 5).word == 5 << 49 | 1 << 62
        assert [Descriptor(0, 0, 0, mode).word >> 62 for mode in ("none", "128B", "64B", "32B")] == [0, 1, 2, 3]

    @given(DESCRIPTORS)
    @settings(deadline=None)
    def test_what_is_encoded_is_decoded(self, it):
        assert decode(it.word) == it
        assert descriptor.reserved(it.word) == []

    @given(st.integers(0, (1 << 64) - 1))
    @settings(deadline=None)
    def test_every_bit_is_a_fields_or_reserved(self, word):
        left = sum(1 << bit for bit in descriptor.reserved(word))
        assert decode(word).word | left == word
        assert decode(word).word & left == 0

    def test_fields_do_not_overlap(self):
        masks = [field.mask for field in FIELDS.values()]
        assert sum(masks) == np.bitwise_or.reduce(np.array(masks, np.uint64))

    @pytest.mark.parametrize("word", [1 << 64, -1])
    def test_more_than_64_bits_are_refused(self, word):
        with pytest.raises(UsageError):
            decode(word)


class TestRules:
    @pytest.mark.parametrize(
        ("fields", "said"),
        [
            ({"start": 0x4008}, "start 0x4008 is no multiple of 16"),
            ({"lbo": 8}, "LBO 0x8 is no multiple of 16"),
            ({"sbo": 1023}, "SBO 0x3ff is no multiple of 16"),
            ({"start": 1 << 18}, "start 0x40000 does not fit in 18 bits"),
            ({"sbo": 1 << 20}, "SBO 0x100000 does not fit in 18 bits"),
            ({"lbo": -16}, "LBO -0x10 does not fit in 18 bits: 0 to 0x3fff0"),
            ({"base_offset": 8}, "base offset 8 does not fit in 3 bits"),
            ({"base_offset": 1, "swizzle": "none"}, "base offset 1 without a swizzle"),
            ({"start": 0x4010}, "start 0x4010 is no multiple of 32"),
            ({"start": 0x4080}, "128 bytes into the 1024 of swizzle 128B: base offset 1, not 0"),
            ({"start": 0x4080, "base_offset": 2}, "base offset 1, not 2"),
            ({"start": 0x4000, "base_offset": 1}, "base offset 0, not 1"),
            ({"start": 0x4200, "swizzle": "64B", "base_offset": 4}, "base offset 0, not 4"),
            ({"start": 0x4040, "swizzle": "64B"}, "start 0x4040 lies in row 1 of the swizzle"),
            ({"start": 0x4080, "swizzle": "32B"}, "128 bytes into the 256 of swizzle 32B: base offset 1, not 0"),
            ({"swizzle": "16B"}, "swizzle '16B'"),
        ],
    )
    def test_broken(self, fields, said):
        with pytest.raises(UsageError, match=said.replace("(", r"\(")) as caught:
            encode(**{"start": 0x4000, "lbo": 16, "sbo": 1024, **fields})
        assert "\n" not in str(caught.value)

    @pytest.mark.parametrize(
        "fields",
        [
            {"start": 0x4060},  # the fourth k of a row
            {"start": 0x4380, "base_offset": 7},
            {"start": 0x4200, "swizzle": "64B"},
            {"start": 0x4020, "swizzle": "64B"},
            {"start": 0x4100, "swizzle": "32B"},
            {"start": 0x4010, "swizzle": "none"},
        ],
    )
    def test_kept(self, fields):
        encode(**{"start": 0x4000, "lbo": 16, "sbo": 1024, **fields})

    def test_strides_under_which_parts_overlap(self):
        assert list(descriptor.overlaps(Descriptor(0, 16, 1024), "K")) == []
        assert "less than the 1024 bytes of 8 rows" in next(descriptor.overlaps(Descriptor(0, 16, 512), "K"))
        assert "less than the 128 bytes" in next(descriptor.overlaps(Descriptor(0, 256, 64, "none"), "MN"))


def tiles() -> list[tuple[str, Descriptor, int]]:
    """Operands of 64 rows or columns that lie tightly: (major, descriptor, bytes)."""
    found = []
    for mode, span in swizzle.SPANS.items():
        if not span:
            found += [("K", Descriptor(1024, 128, 256, mode), 2048), ("MN", Descriptor(1024, 128, 256, mode), 2048)]
            continue
        blocks = 128 // span  # of 64 m or n
        found.append(("MN", Descriptor(1024, 16 * span, 8 * span, mode), blocks * 16 * span))
        found.append(("K", Descriptor(1024, 16, 8 * span, mode), 64 * span))
    return found


class TestAddresses:
    @pytest.mark.parametrize(("major", "it", "size"), tiles())
    def test_no_two_elements_lie_in_one_place(self, major, it, size):
        """A bijection onto the tile: of K-major swizzled rows, all the k that a row has."""
        steps = range(0, swizzle.SPANS[it.swizzle] or 32, 32) if major == "K" else (0,)
        rows, length = (64, 32) if major == "K" else (16, 128)
        found = [
            dataclasses.replace(it, start=it.start + step).address(major, row, byte)
            for step in steps
            for row in range(rows)
            for byte in range(0, length, 2)
        ]
        assert sorted(found) == list(range(it.start, it.start + size, 2))

    def test_the_second_k_is_32_bytes_on_before_the_swizzle(self):
        it = Descriptor(0x4000, 16, 1024)
        assert it.address("K", 0, 0) == 0x4000
        assert it.address("K", 1, 0) == 0x4090
        assert Descriptor(0x4020, 16, 1024).address("K", 1, 0) == 0x40B0
        assert it.address("K", 8, 16) == 0x4410

    @given(DESCRIPTORS, st.integers(0, 15), st.integers(0, 127))
    @settings(max_examples=50, deadline=None)
    def test_without_a_base_offset_it_is_where_tma_puts_it(self, it, row, byte):
        """A K-major row of a swizzle, counted from a pattern's start, is a row of a TMA box."""
        if it.swizzle == "none":
            return
        span, pattern = swizzle.SPANS[it.swizzle], swizzle.PATTERNS[it.swizzle]
        it = dataclasses.replace(it, start=it.start // pattern * pattern, sbo=8 * span, base_offset=0)
        byte %= span
        assert it.address("K", row, byte) == swizzle.swizzled(it.start + row * span + byte, it.swizzle)


def contradicted(case: dict) -> list[str]:
    """Places where the hardware read other bytes than the formula says."""
    it, major = Descriptor(**case["descriptor"]), case["major"]
    return [
        f"{case['operand']} {major} {case['descriptor']}: row {row}, chunk {chunk} at {read}"
        for row, chunks in enumerate(case["read"])
        for chunk, read in enumerate(chunks)
        if read != it.address(major, row, 16 * chunk)
    ]


def recorded() -> list[dict]:
    assert FIXTURE.is_file(), f"{FIXTURE.name} is missing: record it by tools/record_descriptors.py on a Hopper GPU"
    return json.loads(FIXTURE.read_text())["cases"]


def test_the_hardware_reads_so():
    """Tiles that begin as their pattern does, in both majors, as A and as B."""
    plain = [case for case in recorded() if not list(descriptor.misplaced(Descriptor(**case["descriptor"])))]
    plain = [case for case in plain if not case["descriptor"]["base_offset"]]
    assert len(plain) >= 28
    assert [line for case in plain for line in contradicted(case)] == []


def test_the_hardware_reads_a_base_offset_so():
    shifted = [case for case in recorded() if case["descriptor"]["base_offset"]]
    assert len(shifted) >= 5
    assert [line for case in shifted for line in contradicted(case)] == []


class TestTheRecorder:
    """What it writes, of a device that reads by the formulas."""

    @pytest.fixture
    def tool(self, monkeypatch):
        spec = importlib.util.spec_from_file_location("record", ROOT / "tools" / "record_descriptors.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        fake_warpgroup.stand_in(monkeypatch)
        return module

    def test_cases_stay_within_the_numbers(self, tool):
        for operand, major, it in tool.cases():
            rows = 64 if operand == "A" else tool.WIDE
            shape = (rows, 32) if major == "K" else (16, 2 * rows)
            last = max(it.address(major, row, byte) for row, byte in np.ndindex(shape))
            assert last < 2 * tool.NUMBERS, (operand, major, it)

    def test_cases_have_every_swizzle_and_major(self, tool):
        seen = {(operand, major, it.swizzle) for operand, major, it in tool.cases()}
        assert seen == {(o, m, s) for o in "AB" for m in MAJORS for s in swizzle.SPANS}

    @pytest.mark.parametrize("number", [1, 9, 10, 15, 24, 28, 33])
    def test_it_writes_what_was_read(self, tool, number):
        case = json.loads(json.dumps(tool.recorded(None, *tool.cases()[number])))
        assert contradicted(case) == []

    def test_the_comparison_finds_another_address(self, tool):
        case = tool.recorded(None, *tool.cases()[0])
        case["read"][3][1] += 16
        assert len(contradicted(case)) == 1

    def test_it_says_how_a_base_offset_was_read(self, tool):
        case = tool.recorded(None, "B", "K", Descriptor(384, 16, 1024, "128B", 3))
        assert tool.reading(case) == "subtracted"
        it = Descriptor(384, 16, 1024, "128B", 0)
        case["read"] = tool.recorded(None, "B", "K", it)["read"]
        assert tool.reading(case) == "ignored"

    def test_the_hardware_subtracts_a_base_offset(self, tool):
        """In a pattern of two lines of 128 bytes, 32B, one less is one more."""
        shifted = [case for case in recorded() if case["descriptor"]["base_offset"]]
        readings = {case["descriptor"]["swizzle"]: set() for case in shifted}
        for case in shifted:
            readings[case["descriptor"]["swizzle"]].add(tool.reading(case))
        assert readings == {"128B": {"subtracted"}, "64B": {"subtracted"}, "32B": {"subtracted or added"}}

    def test_its_kernels_compile(self):
        wanted = [
            warpgroup.request("bf16", 16, "MN", "K"),
            warpgroup.request("bf16", 128, "K", "MN"),
            warpgroup.request("f16", 16),
            warpgroup.request("bf16", 256),
        ]
        for binary in build_all(wanted):
            assert not isinstance(binary, Exception), binary
            assert binary.advisories == ()


class TestTheCommand:
    def test_decoding(self, capsys):
        code, out, _ = run(capsys, "0x4000004000010400")
        assert code == 0
        assert "low word 0x00010400, high word 0x40000040" in out
        assert "16384 (0x4000)" in out
        assert "1024 (0x400)" in out
        assert "0x4090" in out

    def test_encoding_is_the_same(self, capsys):
        _, decoded, _ = run(capsys, "4000004000010400")
        code, out, _ = run(capsys, "--start", "0x4000", "--sbo", "1024")
        assert code == 0
        assert out == decoded

    def test_mn_major(self, capsys):
        _, out, _ = run(capsys, "--start", "0x4000", "--lbo", "8192", "--sbo", "1024", "--major", "MN")
        assert "from 64 of m or n to the next 64" in out
        assert "start + 2048" in out
        assert "0x6000" in out

    def test_json(self, capsys):
        code, out, _ = run(capsys, "0x4000404000010400", "--json")
        assert code == 1
        found = json.loads(out)
        assert found["sbo"] == 1024
        assert found["wrong"] == ["bit 46 is set and reserved"]

    @pytest.mark.parametrize(
        ("word", "said"),
        [
            ("0x400000400001c400", "WRONG: bit 15 is set and reserved"),
            ("0x4000004000010408", "WRONG: start 0x4080 is 128 bytes into"),
            ("0x4000002000010400", "WRONG: SBO 512 is less than the 1024 bytes of 8 rows"),
        ],
    )
    def test_what_is_wrong_is_told(self, capsys, word, said):
        code, out, _ = run(capsys, word)
        assert code == 1
        assert said in out

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            ([], "give a descriptor"),
            (["0x40", "--start", "0"], "not both"),
            (["0xfg"], "'0xfg' is no hexadecimal number"),
            (["0x12345678123456789"], "more than 64 bits"),
            (["--start", "0x4000"], "--sbo is missing"),
            (["--sbo", "1024"], "--start is missing"),
            (["--start", "0x4008", "--sbo", "1024"], "no multiple of 16"),
            (["--start", "0x4000", "--sbo", "512"], "less than the 1024 bytes"),
        ],
    )
    def test_wrong_words_are_one_line(self, capsys, words, said):
        code, _, err = run(capsys, *words)
        assert code == 2
        assert said in err
        assert len(err.splitlines()) == 1
