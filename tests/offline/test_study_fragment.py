"""Fragment maps: formulas that are bijections, and say what the hardware did."""

import importlib.util
import json
from collections import defaultdict

import fake_warpgroup
import ml_dtypes
import numpy as np
import pytest

from lowlevel import cli, paths
from lowlevel.errors import DeviceError, UsageError
from lowlevel.study import fragment, warpgroup
from lowlevel.study.expression import Formula
from lowlevel.study.fragment import FRAGMENTS, LANES, WARPGROUP, Holder
from lowlevel.toolchain.binary import Request
from lowlevel.toolchain.build import build_all

FIXTURE = paths.kernel_root() / "tests" / "fixtures" / "fragments.json"


def run(capsys, *words) -> tuple[int, str, str]:
    code = cli.main(["study", "fragment", *words])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.mark.parametrize("name", FRAGMENTS)
def test_every_element_is_held_once_and_every_place_holds_one(name):
    it = FRAGMENTS[name]
    places = [it.place(*holder) for holder in it.holders()]
    assert len(places) == it.lanes * it.registers * it.parts == it.rows * it.columns
    assert set(places) == {(row, column) for row in range(it.rows) for column in range(it.columns)}


@pytest.mark.parametrize("name", [name for name, it in FRAGMENTS.items() if it.parts > 1])
def test_the_parts_of_a_register_are_neighbours(name):
    """What the drawing relies on: a register is one cell."""
    it = FRAGMENTS[name]
    for lane, register, _ in it.holders():
        row, column = it.place(lane, register, 0)
        tall, wide = fragment._cell(it)
        cell = {it.place(lane, register, part) for part in range(it.parts)}
        assert cell == {(row + i, column + j) for i in range(tall) for j in range(wide)}
        assert row % tall == column % wide == 0


def test_ldmatrix_deals_out_what_mma_takes():
    """Four matrices, top left, bottom left, top right, bottom right, are A; two along k are B's columns."""
    x4, a = FRAGMENTS["ldmatrix.x4"], FRAGMENTS["mma.m16n8k16.a"]
    for holder in a.holders():
        row, column = x4.place(*holder)
        matrix = row // 8
        assert a.place(*holder) == (row % 8 + 8 * (matrix % 2), column + 8 * (matrix // 2))
    x2, b = FRAGMENTS["ldmatrix.x2"], FRAGMENTS["mma.m16n8k16.b"]
    for holder in b.holders():
        row, column = x2.place(*holder)
        assert b.place(*holder) == (column + 8 * (row // 8), row % 8)


def test_stmatrix_stores_where_ldmatrix_loads():
    for name in (name for name in FRAGMENTS if name.startswith("ldmatrix")):
        loads, stores = FRAGMENTS[name], FRAGMENTS[name.replace("ldmatrix", "stmatrix")]
        assert [loads.place(*h) for h in loads.holders()] == [stores.place(*h) for h in stores.holders()]


def test_a_warp_of_wgmma_holds_what_mma_does():
    """Its 16 rows, 8 columns after 8 columns."""
    sums, mma = FRAGMENTS["wgmma.m64n24k16.d"], FRAGMENTS["mma.m16n8k16.d"]
    for lane, register, part in sums.holders():
        row, column = mma.place(lane % 32, register % 4, part)
        assert sums.place(lane, register, part) == (row + lane // 32 * 16, column + register // 4 * 8)
    a, mma = FRAGMENTS["wgmma.m64k16.a"], FRAGMENTS["mma.m16n8k16.a"]
    for lane, register, part in a.holders():
        row, column = mma.place(lane % 32, register, part)
        assert a.place(lane, register, part) == (row + lane // 32 * 16, column)


def recorded() -> dict:
    assert FIXTURE.is_file(), f"{FIXTURE.name} is missing: record it by tools/record_fragments.py on a Hopper GPU"
    return json.loads(FIXTURE.read_text())


#: The recorded name of a wmma load -> the fragment that it fills.
WMMA = {"a.bf16": "a", "a.f16": "a", "b.bf16": "b", "b.f16": "b", "c.f32": "d", "c.f16": "d.f16"}


def fragment_of(load: str) -> str:
    if load.startswith("ldmatrix"):
        return load
    shape, _, operand = load.removesuffix(".row").removesuffix(".col").partition("m16n16k16.")
    return f"{shape}m16n16k16.{WMMA[operand]}"


def loads_contradicted(loads: dict) -> list[str]:
    """Places where the hardware put another element than the formula says."""
    wrong = []
    for load, lanes in loads.items():
        it = FRAGMENTS[fragment_of(load)]
        for lane, elements in enumerate(lanes):
            for i, element in enumerate(elements):
                register, part = divmod(i, it.parts)
                row, column = it.place(lane, register % it.registers, part)
                if element != row * it.columns + column:
                    wrong.append(f"{load} {lane}:{register}.{part}")
    return wrong


def products_contradicted(product: str, changes: list) -> list[str]:
    """Products a b that the hardware added to a sum of another row, column or k than the formulas say."""
    name = "mma.m16n8k32.s8" if "s8" in product else product.removesuffix(".d.f16").removesuffix(".bf16")
    name = name.removesuffix(".f16")
    a, b = FRAGMENTS[f"{name}.a"], FRAGMENTS[f"{name}.b"]
    d = FRAGMENTS[f"{name}.d.f16" if product.endswith(".d.f16") else f"{name}.d"]
    holders = {it.name: list(it.holders()) for it in (a, b, d)}
    wrong, seen = [], set()
    for holder, sums in zip(holders[a.name], changes, strict=True):
        m, k = a.place(*holder)
        for at, other in sums:
            its_k, n = b.place(*holders[b.name][other])
            if (m, n) != d.place(*holders[d.name][at]) or k != its_k:
                wrong.append(f"{product}: A {holder}, B {holders[b.name][other]}, D {holders[d.name][at]}")
            seen.add((m, n, k))
    missing = {(m, n, k) for m in range(a.rows) for n in range(b.columns) for k in range(a.columns)} - seen
    return wrong + [f"{product}: no product {missing}"] * bool(missing)


def test_the_hardware_loads_so():
    loads = recorded()["loads"]
    assert len(loads) == 18
    assert loads_contradicted(loads) == []


def test_the_hardware_multiplies_so():
    """Up to names: that rows of A and D, columns of B and D, and the k of A and B go together is what it shows."""
    products = recorded()["products"]
    assert len(products) == 8
    assert [line for name, changes in products.items() for line in products_contradicted(name, changes)] == []


def stores_contradicted(stores: dict) -> list[str]:
    """Elements of shared memory that the hardware took from another register, lane or part than the formula says."""
    wrong = []
    for name, memory in stores.items():
        it = FRAGMENTS[name]
        for i, holder in enumerate(it.holders()):
            row, column = it.place(*holder)
            if memory[row * it.columns + column] != i:
                wrong.append(f"{name} {row}, {column} is not of {holder}")
    return wrong


def sums_contradicted(sums: dict) -> list[str]:
    """Sums of wgmma that the hardware left elsewhere."""
    wrong = []
    for n, held in sums.items():
        it = FRAGMENTS[f"wgmma.m64n{n}k16.d"]
        for lane, register, part in it.holders():
            row, column = it.place(lane, register, part)
            if held["first"][lane] + held["later"][register] != row * it.columns + column:
                wrong.append(f"{it.name} {lane}:{register}")
    return wrong


def operands_contradicted(operands: dict) -> list[str]:
    """Elements of A that the hardware took from elsewhere."""
    wrong = []
    for name, elements in operands.items():
        it = FRAGMENTS["wgmma.m64k16.a"]
        for i, holder in enumerate(it.holders()):
            row, column = it.place(*holder)
            if elements[row * it.columns + column] != i:
                wrong.append(f"{name} {row}, {column} is not of {holder}")
    return wrong


def test_the_hardware_stores_so():
    stores = recorded()["stores"]
    assert len(stores) == 6
    assert stores_contradicted(stores) == []


def test_the_hardware_sums_so():
    sums = recorded()["sums"]
    assert [int(n) for n in sums] == list(range(8, 257, 8))
    assert sums_contradicted(sums) == []


def test_the_hardware_takes_operands_so():
    operands = recorded()["operands"]
    assert list(operands) == ["wgmma.m64k16.a.bf16", "wgmma.m64k16.a.f16"]
    assert operands_contradicted(operands) == []


class TestTheComparison:
    """It finds what it is there to find, on maps that are made here."""

    def made(self) -> tuple[dict, list]:
        x4 = FRAGMENTS["ldmatrix.x4"]
        loads = {"ldmatrix.x4": [[0] * 8 for _ in range(LANES)]}
        for lane, register, part in x4.holders():
            row, column = x4.place(lane, register, part)
            loads["ldmatrix.x4"][lane][2 * register + part] = 8 * row + column
        a, b, d = (FRAGMENTS[f"mma.m16n8k16.{operand}"] for operand in "abd")
        index = {it: {it.place(*h): i for i, h in enumerate(it.holders())} for it in (b, d)}
        changes = []
        for holder in a.holders():
            m, k = a.place(*holder)
            changes.append([[index[d][m, n], index[b][k, n]] for n in range(8)])
        return loads, changes

    def test_right_maps_pass(self):
        loads, changes = self.made()
        assert loads_contradicted(loads) == []
        assert products_contradicted("mma.m16n8k16.bf16", changes) == []

    def test_wrong_ones_do_not(self):
        loads, changes = self.made()
        lane = loads["ldmatrix.x4"][3]
        lane[2], lane[3] = lane[3], lane[2]
        assert loads_contradicted(loads) == ["ldmatrix.x4 3:1.0", "ldmatrix.x4 3:1.1"]
        changes[0], changes[2] = changes[2], changes[0]
        assert len(products_contradicted("mma.m16n8k16.bf16", changes)) == 16

    def test_a_missing_product_is_seen(self):
        _, changes = self.made()
        del changes[5][1]
        assert "no product" in products_contradicted("mma.m16n8k16.bf16", changes)[0]


class TestTheRecorder:
    """What it writes, of a device that multiplies by the formulas."""

    DTYPES = {"FP16": np.float16, "BF16": ml_dtypes.bfloat16, "TF32": np.float32, "INT8": np.int8}

    @pytest.fixture
    def tool(self):
        spec = importlib.util.spec_from_file_location("record", paths.kernel_root() / "tools" / "record_fragments.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    @pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
    def test_its_kernels_compile(self, tool, arch):
        support = paths.kernel_root() / "cu" / "support"
        entries = defaultdict(set)
        for type_, kernel, _, _ in tool.PRODUCTS.values():
            entries[type_].add(kernel)
        requests = [
            Request("cuda", support / "fragment_products.cu", arch, tuple(sorted(kernels)), ((f"TYPE_{type_}", "1"),))
            for type_, kernels in entries.items()
        ]
        loads = (f"ldmatrix_x{n}{trans}_dealt" for n in (1, 2, 4) for trans in ("", "_trans"))
        requests.append(Request("cuda", support / "fragment_loads.cu", arch, tuple(loads)))
        for binary in build_all(requests):
            assert not isinstance(binary, Exception), binary
            assert binary.advisories == ()

    @pytest.mark.parametrize("product", ["mma.m16n8k16.f16.d.f16", "mma.m16n8k8.bf16", "mma.m16n8k8.tf32",
                                         "mma.m16n8k32.s8", "wmma.m16n16k16.bf16"])  # fmt: skip
    def test_products(self, tool, monkeypatch, product):
        type_, kernel, name, sums = tool.PRODUCTS[product]
        dtype = self.DTYPES[type_.removesuffix("_ACC16")]
        a, b, d = (FRAGMENTS[f"{name}.{operand}"] for operand in ("a", "b", sums))

        def matrices(words, it):
            values = words.view(dtype).astype(int).reshape(-1, tool.count(it))
            found = np.zeros((len(values), it.rows, it.columns), int)
            for i, holder in enumerate(it.holders()):
                found[(slice(None), *it.place(*holder))] = values[:, i]
            return found

        def run(_device, _function, A, B, _cases, _sums):
            D = matrices(A, a) @ matrices(B, b)
            return np.stack([D[(slice(None), *d.place(*holder))] for holder in d.holders()], axis=1)

        monkeypatch.setattr(tool, "support_function", lambda *_, **__: None)
        monkeypatch.setattr(tool, "run", run)
        assert products_contradicted(product, tool.products(None, type_, kernel, name, sums)) == []


class TestTheRecorderOfWarpgroups:
    """What it writes, of a device that multiplies and stores by the formulas."""

    @pytest.fixture
    def tool(self, monkeypatch):
        spec = importlib.util.spec_from_file_location("record", paths.kernel_root() / "tools" / "record_fragments.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        fake_warpgroup.stand_in(monkeypatch)
        return module

    @pytest.mark.parametrize("n", [8, 40, 256])
    def test_sums(self, tool, n):
        held = tool.sums(None, n)
        assert sums_contradicted({n: held}) == []
        held["later"][3] += 1
        assert len(sums_contradicted({n: held})) == WARPGROUP

    def test_sums_that_threads_order_each_in_its_way_are_told(self, tool, monkeypatch):
        def of_shared(*arguments):
            D = fake_warpgroup.of_shared(*arguments)
            D[7, [0, 1]] = D[7, [1, 0]]
            return D

        monkeypatch.setattr(warpgroup, "of_shared", of_shared)
        with pytest.raises(DeviceError, match="N = 8: threads hold their sums in different orders"):
            tool.sums(None, 8)

    @pytest.mark.parametrize("type_", ["bf16", "f16"])
    def test_operands(self, tool, type_):
        elements = tool.operands(None, type_)
        assert operands_contradicted({type_: elements}) == []
        elements[0], elements[1] = elements[1], elements[0]
        assert len(operands_contradicted({type_: elements})) == 2

    def test_stores(self, tool, monkeypatch):
        def launch(_device, kernel, arguments):
            it = FRAGMENTS[kernel.removesuffix("_stored").replace("_", ".")]
            held, memory = arguments
            memory.found = np.zeros(it.rows * it.columns, np.uint16)
            for holder, value in zip(it.holders(), held.found, strict=True):
                row, column = it.place(*holder)
                memory.found[row * it.columns + column] = value

        monkeypatch.setattr(tool, "support_function", lambda _device, _source, kernel: kernel)
        monkeypatch.setattr(tool, "launch", launch)
        stores = tool.stores(Memory())
        assert len(stores) == 6
        assert stores_contradicted(stores) == []
        memory = stores["stmatrix.x2.trans"]
        memory[3], memory[4] = memory[4], memory[3]
        assert len(stores_contradicted(stores)) == 2

    def test_their_kernels_compile(self):
        source = paths.kernel_root() / "cu" / "support" / "fragment_stores.cu"
        kernels = tuple(f"stmatrix_x{n}{trans}_stored" for n in (1, 2, 4) for trans in ("", "_trans"))
        for binary in build_all([Request("cuda", source, "sm_90", kernels), warpgroup.request("bf16", 72)]):
            assert not isinstance(binary, Exception), binary
            assert binary.advisories == ()


class Memory:
    """A device whose buffers keep what is uploaded."""

    def allocate(self, nbytes):
        return Memory()

    def upload(self, array):
        self.found = array

    def download(self, dtype, shape):
        return self.found.reshape(shape)


class TestTheCommand:
    def test_a_lane_is_shown_in_the_drawing_and_in_words(self, capsys):
        code, out, _ = run(capsys, "mma.m16n8k16.a", "--lane", "5")
        assert code == 0
        assert "register 2: (1, 10) (1, 11)" in out
        assert out.count("5:") == 4
        assert "k = 2 * (lane % 4) + part + 8 * (register / 2)" in out

    def test_the_beginning_of_a_name_is_all_its_operands(self, capsys):
        _, out, _ = run(capsys, "mma.m16n8k16", "--json")
        assert list(json.loads(out)) == [f"mma.m16n8k16.{o}" for o in ("a", "b", "d", "d.f16")]

    def test_json_has_every_element(self, capsys):
        _, out, _ = run(capsys, "ldmatrix.x1.trans", "--json", "--lane", "4")
        places = [(e["part"], e["row"], e["column"]) for e in json.loads(out)["ldmatrix.x1.trans"]]
        assert places == [(0, 0, 1), (1, 1, 1)]

    def test_without_a_name_all_are_listed(self, capsys):
        code, out, _ = run(capsys)
        assert code == 0
        assert all(name in out for name in FRAGMENTS if not name.startswith("wgmma.m64n"))
        assert "wgmma.m64nNk16.d" in out

    def test_a_family_is_all_of_it(self, capsys):
        _, out, _ = run(capsys, "wgmma.m64nNk16.d", "--json", "--lane", "0")
        assert [len(held) for held in json.loads(out).values()] == list(range(4, 129, 4))

    def test_a_wide_matrix_is_drawn_where_it_was_asked_for(self, capsys):
        _, out, _ = run(capsys, "wgmma.m64n256k16.d", "--lane", "37")
        drawn = [line.split() for line in out.split("\n\n", 2)[2].splitlines()]
        assert [line[0] for line in drawn if line] == [row for c in range(0, 256, 32) for row in (str(c), "17", "25")]
        assert sum(cell.startswith("37:") for line in drawn for cell in line) == 128
        _, out, _ = run(capsys, "wgmma.m64n64k16.d")
        assert "columns 32 to 63: ask for a lane" in out
        assert "127:15" in out
        assert "127:16" not in out

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            (["mma.m16n8k99"], "no fragment 'mma.m16n8k99'; there are mma.m16n8k8.a"),
            (["ldmatrix.x1", "--lane", "32"], "no lane 32: a warp has lanes 0 to 31"),
            (["wgmma.m64k16.a", "--lane", "128"], "no lane 128: a warpgroup has lanes 0 to 127"),
            (["wgmma.m64n12k16.d"], "there are wgmma.m64k16.a, wgmma.m64nNk16.d"),
            (["ldmatrix.x1", "--register", "1"], "ldmatrix.x1 has registers 0 to 0"),
        ],
    )
    def test_wrong_words_are_one_line(self, capsys, words, said):
        code, _, err = run(capsys, *words)
        assert code == 2
        assert said in err
        assert len(err.splitlines()) == 1


def test_a_drawing_names_who_holds_what():
    lines = fragment.draw(FRAGMENTS["mma.m16n8k32.s8.b"]).splitlines()
    assert lines[0].split() == [str(n) for n in range(8)]
    assert lines[1].split()[:3] == ["0-3", "0:0", "4:0"]
    assert FRAGMENTS["mma.m16n8k32.s8.b"].holder_of()[17, 2] == Holder(8, 1, 1)


class TestFormulas:
    def test_precedence_is_that_of_c(self):
        assert Formula("1 + 2 ^ 3 * 2 & 4 | 8", ())() == ((1 + 2) ^ ((3 * 2) & 4)) | 8
        assert Formula("row / 2 % 4 << 1", ("row",))(row=7) == 6

    @pytest.mark.parametrize("text", ["", "lane +", "lane.real", "f(lane)", "lane ** 9", "1.5", "'a'", "True", "other"])
    def test_nothing_else_is_evaluated(self, text):
        with pytest.raises(UsageError):
            Formula(text, ("lane",))

    @pytest.mark.parametrize("text", ["1 / lane", "1 % lane", "1 << 50", "1 << lane - 1", "99999999 * 99999999"])
    def test_what_has_no_value_is_told(self, text):
        with pytest.raises(UsageError, match="'"):
            Formula(text, ("lane",))(lane=0)

    def test_long_text_is_refused(self):
        with pytest.raises(UsageError, match="is not a formula"):
            Formula("+".join(["1"] * 5000), ())
