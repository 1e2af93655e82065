"""Where TMA puts a box: a bijection, against what the hardware did; and the command."""

import importlib.util
import itertools
import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lowlevel import cli, paths
from lowlevel.errors import DeviceError, UsageError
from lowlevel.study import swizzle, tma
from lowlevel.study.tma import Box
from lowlevel.toolchain.binary import Request
from lowlevel.toolchain.build import build_all
from lowlevel.worker import WorkerHung

ROOT = paths.kernel_root()
FIXTURE = ROOT / "tests" / "fixtures" / "tma.json"


def run(capsys, *words) -> tuple[int, str, str]:
    code = cli.main(["study", "tma", *words])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@st.composite
def boxes(draw) -> Box:
    mode = draw(st.sampled_from(list(swizzle.SPANS)))
    element = draw(st.sampled_from(list(tma.ELEMENTS)))
    chunks = draw(st.integers(1, swizzle.SPANS[mode] // 16 or 8))
    outer = draw(st.lists(st.integers(1, 6), min_size=1, max_size=2))
    box = (*outer, chunks * 16 // element)
    at = draw(st.lists(st.integers(-4, 8), min_size=len(box), max_size=len(box)))
    tensor = draw(st.lists(st.integers(1, 12), min_size=len(box), max_size=len(box)))
    return Box(element, box, mode, 128 * draw(st.integers(0, 20)), tuple(tensor), tuple(at))


class TestPlaces:
    @given(boxes())
    @settings(deadline=None)
    def test_every_chunk_has_a_place_of_its_own(self, it):
        places = [it.address(*place) for place in it.places()]
        assert len(set(places)) == it.rows * it.chunks == it.bytes // 16
        assert all(address % 16 == 0 and address >= it.offset for address in places)
        assert max(places) < it.offset + it.rows * it.pitch

    @given(boxes())
    @settings(deadline=None)
    def test_full_rows_leave_no_gap(self, it):
        if 16 * it.chunks == it.pitch:
            places = [it.address(*place) for place in it.places()]
            assert sorted(places) == list(range(it.offset, it.offset + it.bytes, 16))

    @given(boxes())
    @settings(deadline=None)
    def test_elements_are_the_tensors_or_zero(self, it):
        """Against numpy: a tensor amid zeros, and a window of it."""
        before, after = 4, 8  # as far as coordinates go
        amid = np.pad(
            np.arange(1, np.prod(it.tensor) + 1).reshape(it.tensor), [(before, after + size) for size in it.box]
        )
        first = [at + before for at in it.at]
        window = amid[tuple(slice(f, f + size) for f, size in zip(first, it.box, strict=True))]
        chunks = window.reshape(it.rows, it.chunks, -1)
        assert all(it.elements(*place) == tuple(chunks[place]) for place in it.places())

    def test_eight_rows_are_a_pattern(self):
        """The rows of 128 bytes that hold chunk 0: each in another group of four banks."""
        it = Box(2, (16, 64), "128B")
        assert [it.address(row, 0) % 128 // 16 for row in range(9)] == [0, 1, 2, 3, 4, 5, 6, 7, 0]
        it = Box(2, (16, 32), "64B")
        assert [it.address(row, 0) % 64 // 16 for row in range(9)] == [0, 0, 1, 1, 2, 2, 3, 3, 0]
        it = Box(2, (16, 16), "32B")
        assert [it.address(row, 0) % 32 // 16 for row in range(9)] == [0, 0, 0, 0, 1, 1, 1, 1, 0]

    def test_the_pattern_belongs_to_shared_memory(self):
        moved, there = Box(2, (8, 64), "128B", 384), Box(2, (16, 64), "128B")
        assert moved.address(0, 5) == there.address(3, 5)

    def test_packed_loses_nothing(self):
        landed = {0: (7, 8, 9, 10), 16: (0, 0, 0, 0), 48: (5, 6, 0, 0), 64: (0, 3, 4, 5), 80: (1, 2, 3, 5)}
        assert tma.packed(landed) == [7, 0, None, [5, 6, 0, 0], [0, 3, 4, 5], [1, 2, 3, 5]]

    @pytest.mark.parametrize(
        ("fields", "said"),
        [
            ({"element": 3}, "an element of 3 bytes"),
            ({"box": (8, 33)}, "not a multiple of 16"),
            ({"box": (8, 128)}, "more than the 128 that swizzle 128B spans"),
            ({"box": (257, 64)}, "a box of 257 elements in a dimension: 1 to 256"),
            ({"box": (0, 64)}, "a box of 0 elements in a dimension: 1 to 256"),
            ({"box": (256,) * 4 + (64,)}, "a block has at most 232448"),
            ({"offset": 232448 - 896}, "ends at byte 232576 of shared memory: a block has at most 232448"),
            ({"at": (2**31, 0)}, "coordinate 2147483648 does not fit in the 32 bits"),
            ({"at": (0, -(2**31) - 8)}, "coordinate -2147483656 does not fit in the 32 bits"),
            ({"offset": 64}, "multiples of 128"),
            ({"offset": -128}, "multiples of 128"),
            ({"at": (0,)}, "differ in dimensions"),
            ({"tensor": (8, 64, 1)}, "differ in dimensions"),
            ({"swizzle": "16B"}, "swizzle '16B' is unknown"),
        ],
    )
    def test_what_no_map_takes_is_refused(self, fields, said):
        with pytest.raises(UsageError, match=said):
            Box(**{"element": 2, "box": (8, 64), "swizzle": "128B", **fields})

    def test_a_box_may_end_where_shared_memory_does(self):
        last = Box(2, (8, 64), "128B", 232448 - 1024, at=(2**31 - 1, -(2**31)))
        assert last.address(7, 0) < 232448


def contradicted(case: dict) -> list[str]:
    """Why a recorded box is not as the formula says: at most one line."""
    fields = {
        name: tuple(v) if isinstance(v, list) else v
        for name, v in case.items()
        if name not in ("late", "memory", "fault")
    }
    it = Box(**fields)
    if "fault" in case:
        return [] if it.refusal else [f"{it}: the hardware refuses it: {case['fault']}"]
    if it.refusal:
        return [f"{it}: the hardware loads it: {it.refusal}"]
    if case["late"]:
        return [f"{it}: other bytes landed than the {it.bytes} of the box"]
    expected = tma.packed(it.landed())
    for i in range(max(len(expected), len(case["memory"]))):
        here = [memory[i] if i < len(memory) else None for memory in (case["memory"], expected)]
        if here[0] != here[1]:
            return [f"{it}: byte {16 * i} has {here[0]}, not {here[1]}"]
    return []


def recorded() -> list[dict]:
    if not FIXTURE.is_file():
        where = f"tests/fixtures/{FIXTURE.name}"
        pytest.skip(f"{where} is not recorded yet: on a Hopper GPU, python tools/record_tma.py {where}")
    return json.loads(FIXTURE.read_text())["cases"]


def test_the_hardware_puts_them_so():
    assert [line for case in recorded() for line in contradicted(case)] == []


def test_boxes_that_begin_anywhere_in_a_row_are_refused():
    """By the hardware: the comparison above holds that it is those of the rule, and no others."""
    found = [case.get("fault") for case in recorded()]
    assert set(found) == {None, "illegal instruction"}
    assert found.count(None) >= 40


def test_the_recorded_boxes_are_those_of_the_tool():
    tool = recorder()
    expected = [json.loads(json.dumps(tool.fields(box))) for box in tool.cases()]
    found = [{name: case[name] for name in expected[0]} for case in recorded()]
    if missing := [case for case in expected if case not in found]:
        pytest.skip(f"{len(missing)} boxes of tools/record_tma.py are not in tests/fixtures/{FIXTURE.name} yet")
    assert found == expected


def recorder():
    spec = importlib.util.spec_from_file_location("record", ROOT / "tools" / "record_tma.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Outcomes:
    """A pool that has run: call's number -> what became of it, in the order in which it did."""

    def __init__(self, outcomes: dict):
        self.outcomes, self.closed = outcomes, False

    def map(self, _function, arguments, _deadline):
        assert len(arguments) == len(self.outcomes)
        try:
            yield from self.outcomes.items()
        finally:
            self.closed = True


class TestTheRecorder:
    """What it writes, of a device that loads by the formulas."""

    def recorded(self, monkeypatch, it: Box) -> dict:
        tool = recorder()

        def loaded(_device, box, digit):
            memory = np.full(tool.MEMORY, 255, np.uint8)
            values = np.concatenate([[0], digit.ravel()]).astype(tool._TYPES[box.element])
            for address, elements in box.landed().items():
                memory[address : address + 16] = values[list(elements)].view(np.uint8)
            return memory, False

        monkeypatch.setattr(tool, "loaded", loaded)
        return json.loads(json.dumps(tool.recorded(None, it)))

    def test_it_writes_what_landed(self, monkeypatch):
        for it in recorder().cases():
            if not it.refusal:
                assert contradicted(self.recorded(monkeypatch, it)) == []

    def test_the_comparison_finds_what_is_elsewhere(self, monkeypatch):
        it = Box(2, (10, 64), "128B", 0, (20, 140), (3, 8))
        case = self.recorded(monkeypatch, it)
        case["memory"][9], case["memory"][8] = case["memory"][8], case["memory"][9]
        assert "byte 128 has" in contradicted(case)[0]
        assert "other bytes landed" in contradicted({**case, "late": True})[0]
        case = self.recorded(monkeypatch, it)
        case["memory"].append(0)
        assert "has 0, not None" in contradicted(case)[0]

    def test_a_box_that_faults_is_a_case_too(self, monkeypatch):
        """And the error text that it gives is the driver's name, in words; others go on."""
        tool, boxes = recorder(), [Box(2, (8, 64), "128B", offset) for offset in (0, 128, 256, 384)]
        lost = DeviceError(
            "CUDA_ERROR_ILLEGAL_INSTRUCTION while waiting for a stream", "CUDA_ERROR_ILLEGAL_INSTRUCTION"
        )
        outcomes = {
            3: ("H200", {**tool.fields(boxes[3]), "late": True, "memory": []}),
            1: lost,
            2: WorkerHung("no answer in 60 s; killed"),
            0: ("H200", {**tool.fields(boxes[0]), "late": False, "memory": tma.packed(boxes[0].landed())}),
        }
        gpu, cases = tool.recorded_apart(boxes, Outcomes(outcomes))
        assert gpu == "H200"
        assert [case.get("fault") for case in cases] == [None, "illegal instruction", "no answer in 60 s; killed", None]
        assert [case["offset"] for case in cases] == [0, 128, 256, 384]
        said = [tool.surprise(case, box) for case, box in zip(cases, boxes, strict=True)]
        assert said[:2] == ["", "fault, illegal instruction"]
        assert said[3] == "other bytes landed than those of the box"
        lines = [line for case in json.loads(json.dumps(cases)) for line in contradicted(case)]
        assert len(lines) == 3
        assert lines[0].endswith("offset=128, tensor=(8, 64), at=(0, 0)): the hardware refuses it: illegal instruction")

    def test_the_rule_of_coordinates_is_compared_too(self, monkeypatch):
        """Both ways: what is refused and loaded, what is taken and faults."""
        tool, off, on = recorder(), Box(2, (8, 64), at=(0, 4)), Box(2, (8, 64), at=(0, -8))
        loaded, fault = self.recorded(monkeypatch, off), {**tool.fields(off), "fault": "illegal instruction"}
        assert (tool.surprise(loaded, off), tool.surprise(fault, off)) == ("loaded, against the rule", "")
        assert ": the hardware loads it: a box from byte 8 of a row on" in contradicted(loaded)[0]
        assert contradicted(fault) == []
        assert contradicted(self.recorded(monkeypatch, on)) == []
        assert contradicted({**tool.fields(on), "fault": "illegal instruction"}) != []

    def test_other_errors_end_it(self):
        """And the pool with it."""
        tool, pool = recorder(), Outcomes({0: DeviceError("out of memory", "CUDA_ERROR_OUT_OF_MEMORY")})
        with pytest.raises(DeviceError, match="out of memory"):
            tool.recorded_apart([Box(2, (8, 64))], pool)
        assert pool.closed

    def test_a_child_is_replaced_when_its_context_is_lost(self):
        tool = recorder()
        assert tool.is_lost(DeviceError("", "CUDA_ERROR_ILLEGAL_INSTRUCTION"))
        assert not tool.is_lost(DeviceError("", "CUDA_ERROR_OUT_OF_MEMORY"))
        assert not tool.is_lost(WorkerHung("no answer in 60 s; killed"))

    def test_without_a_driver_it_says_so(self, tmp_path):
        """Its children too are found and answer."""
        out = tmp_path / "tma.json"
        hidden = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1"}
        done = subprocess.run(
            [sys.executable, ROOT / "tools" / "record_tma.py", out], env=hidden, capture_output=True, text=True
        )
        assert done.returncode == 2
        assert re.fullmatch(r"record_tma: [^\n]+\n", done.stderr)
        assert not out.exists()

    def test_cases_cover_what_there_is(self):
        cases = recorder().cases()
        assert {(b.swizzle, b.element) for b in cases} == {(s, e) for s in swizzle.SPANS for e in tma.ELEMENTS}
        assert {len(b.box) for b in cases} == {2, 3}
        for rank, element in itertools.product((2, 3), tma.ELEMENTS):  # over the left and the right edge
            loaded = [b for b in cases if (len(b.box), b.element) == (rank, element) and not b.refusal]
            assert any(b.at[-1] < 0 for b in loaded)
            assert any(b.at[-1] + b.box[-1] > b.tensor[-1] for b in loaded)
        assert {b.element for b in cases if b.refusal} == set(tma.ELEMENTS)
        assert any(not any(map(any, b.landed().values())) for b in cases)
        assert all(max(b.landed()) + 16 <= recorder().MEMORY for b in cases)
        assert len({b.offset for b in cases}) >= 4

    def test_its_kernels_compile(self):
        source = ROOT / "cu" / "support" / "tma_boxes.cu"
        (binary,) = build_all([Request("cuda", source, "sm_90", ("tma_box_2d", "tma_box_3d"))])
        assert not isinstance(binary, Exception), binary
        assert binary.advisories == ()


class TestTheCommand:
    def test_a_pattern(self, capsys):
        code, out, _ = run(capsys, "--box", "8x64", "--element", "2", "--swizzle", "128B")
        assert code == 0
        assert "expects 1024 bytes" in out
        lines = [line.split() for line in out.splitlines()]
        assert ["384", "3:3", "3:2", "3:1", "3:0", "3:7", "3:6", "3:5", "3:4"] in lines

    def test_zeros(self, capsys):
        _, out, _ = run(capsys, "--box", "3x16", "--element", "2", "--tensor", "10x20", "--at", "8,8")
        lines = [line.split() for line in out.splitlines()]
        assert ["0", "0:0", "0:1+0", "1:0", "1:1+0", "0", "0", ".", "."] in lines

    def test_rows_of_three_dimensions(self, capsys):
        _, out, _ = run(capsys, "--box", "2x4x32", "--element", "1", "--swizzle", "32B", "--offset", "128")
        assert "1.3:1" in out
        assert "The pattern begins at multiples of 256 bytes, and row 0 of the box 128 after one." in out

    def test_json(self, capsys):
        code, out, _ = run(capsys, "--box", "2x8", "--element", "2", "--json")
        assert code == 0
        found = json.loads(out)
        assert found["bytes"] == 32
        assert found["chunks"][1] == {"row": 1, "chunk": 0, "address": 16, "elements": list(range(9, 17))}

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            (["--box", "8x33"], "not a multiple of 16"),
            (["--box", "8x64", "--offset", "64"], "multiples of 128"),
            (["--box", "8x64", "--at", "1"], "differ in dimensions"),
            (["--box", "8x64", "--at", "2,-4"], "a box from byte -8 of a row on, not a multiple of 16: an H200 ends"),
            (["--box", "8x64", "--element", "1", "--at", "0,8"], "a box from byte 8 of a row on"),
        ],
    )
    def test_wrong_words_are_one_line(self, capsys, words, said):
        code, _, err = run(capsys, *words)
        assert code == 2
        assert said in err
        assert len(err.splitlines()) == 1
