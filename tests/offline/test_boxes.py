"""Hopper's operands: in which boxes TMA moves them, and the copies of those that it cannot take."""

import re
from types import SimpleNamespace

import numpy as np
import pytest

from lowlevel import catalog, hardware
from lowlevel.catalog import repack, rules
from lowlevel.catalog.boxes import operand_tile, output_tile
from lowlevel.catalog.entry import Kernel, Launch, Variant
from lowlevel.contender import NO_MAP, KernelContender, Values, for_code, launch_shape, placed
from lowlevel.declare import declared
from lowlevel.device.protocol import LaunchShape
from lowlevel.dtypes import BF16, FP8, FP16, FP32, INT8
from lowlevel.errors import UsageError
from lowlevel.export.paper import Paper
from lowlevel.problems.gemm import LAYOUTS, Gemm
from lowlevel.problems.make import make_problem
from lowlevel.tensormap import TensorMap, broken_offsets, broken_rules

LIMITS = hardware.find("H200")
CONFIG = {"BM": 128, "BN": 192, "BK": 64, "STAGES": 4}
#: Every kernel that TMA brings its operands.
BOXED = [kernel for kernel in catalog.kernels() if kernel.boxes]


def gemm(layout="NT", m=256, n=512, k=128, type_=BF16, **more) -> Gemm:
    return Gemm(m, n, k, type_, layout, **more)


class TestBoxes:
    @pytest.mark.parametrize(
        ("layout", "a", "b"),
        [
            ("NT", ((256, 128), (128, 64)), ((512, 128), (192, 64))),
            ("NN", ((256, 128), (128, 64)), ((128, 512), (64, 64))),
            ("TN", ((128, 256), (64, 64)), ((128, 512), (64, 64))),
            ("TT", ((128, 256), (64, 64)), ((512, 128), (192, 64))),
        ],
    )
    def test_a_tile_is_one_box_along_k_and_boxes_of_64_along_m_or_n(self, layout, a, b):
        for name, (shape, box) in (("A", a), ("B", b)):
            found = operand_tile(name)(CONFIG, gemm(layout), LIMITS)
            assert found == TensorMap("bf16", shape, (2 * shape[1],), box, "128B")

    def test_a_row_of_fp8_is_128_elements(self):
        assert operand_tile("A")(CONFIG | {"BK": 128}, gemm(type_=FP8), LIMITS).box == (128, 128)

    @pytest.mark.parametrize(("layout", "rows"), [("NT", 96), ("NN", 32)])
    def test_blocks_that_share_a_tile_fetch_a_slice_each(self, layout, rows):
        config = CONFIG | {"CLUSTER_M": 2}
        assert operand_tile("B", "CLUSTER_M")(config, gemm(layout), LIMITS).box == (rows, 64)
        with pytest.raises(UsageError, match=r"B's boxes have .* rows, which CLUSTER_M=5 blocks cannot share"):
            operand_tile("B", "CLUSTER_M")(CONFIG | {"CLUSTER_M": 5}, gemm(layout), LIMITS)

    def test_c_is_swizzled_where_a_row_is_128_bytes(self):
        assert output_tile(64)(CONFIG, gemm(), LIMITS) == TensorMap("bf16", (256, 512), (1024,), (64, 64), "128B")
        assert output_tile(16, 144)(CONFIG, gemm(), LIMITS).swizzle == "none"
        assert output_tile(64, 32)(CONFIG, gemm(type_=FP32), LIMITS).swizzle == "128B"

    def test_c_has_no_map_where_its_rows_do_not_begin_at_16_bytes(self):
        assert output_tile(64)(CONFIG, gemm(n=513), LIMITS) is None
        assert output_tile(64)(CONFIG, gemm(n=513, ldc=520), LIMITS) is not None
        assert output_tile(64)(CONFIG, gemm(unaligned=("C",)), LIMITS) is None


class TestCopies:
    def test_only_rows_that_tma_cannot_take_are_copied(self):
        assert repack.copies(gemm()) == {}
        assert list(repack.copies(gemm(k=129))) == ["A", "B"]
        assert list(repack.copies(gemm("NN", k=129))) == ["A"]
        assert list(repack.copies(gemm(k=129, lda=136))) == ["B"]
        assert list(repack.copies(gemm(n=513, m=1))) == []  # C is stored without TMA
        assert list(repack.copies(gemm(unaligned=("B", "C")))) == ["B"]
        assert list(repack.copies(gemm(type_=INT8, k=8))) == ["A", "B"]

    def test_copies_have_padded_rows_one_behind_the_other(self):
        a, b = repack.copies(gemm("NT", 3, 5, 129)).values()
        assert (a.operand.leading, a.offset, a.operand.shape) == (136, 0, (3, 129))
        assert (b.operand.leading, b.offset) == (136, 1024)  # 3 x 272 bytes, in multiples of 256
        assert repack.bytes_of_copies(CONFIG, gemm("NT", 3, 5, 129), LIMITS) == 1024 + 1536
        assert repack.copies(gemm(k=1, unaligned=("A",)))["A"].operand.aligned

    def test_a_kernels_own_workspace_lies_behind_them(self):
        own = lambda config, problem, limits: 100  # noqa: E731
        assert repack.behind_copies(own)(CONFIG, gemm("NT", 3, 5, 129), LIMITS) == 2560 + 100
        assert repack.behind_copies(own)(CONFIG, gemm(), LIMITS) == 100

    @pytest.mark.parametrize("layout", LAYOUTS)
    def test_maps_see_the_copy(self, layout):
        problem = gemm(layout, 129, 131, 133)
        for name in ("A", "B"):
            found = operand_tile(name)(CONFIG, problem, LIMITS)
            assert list(broken_rules(found, 256)) == []
            assert found.strides == (272,)

    def test_a_launch_for_every_operand_that_is_copied(self):
        kernel = catalog.find("cuda:gemm/20_tma_wgmma[bf16,NT,128x128x64]").kernel
        entries = lambda problem: [step.params[0] for step in kernel.steps_for(problem)]  # noqa: E731
        assert entries(gemm()) == ["map_A"]
        assert entries(gemm(k=129, ldb=136)) == ["A", "map_A"]
        assert entries(gemm(k=129)) == ["A", "B", "map_A"]
        assert len(kernel.steps) == 3

    def test_a_thread_for_every_16_bytes_of_a_copy(self):
        """3 x 17 chunks; 61 x 17 are 1037, four blocks of 256 and a rest."""
        assert repack.chunks("A")(CONFIG, gemm("NT", 3, 5, 129), LIMITS) == (1, 1, 1)
        assert repack.chunks("A")(CONFIG, gemm("NT", 61, 5, 129), LIMITS) == (5, 1, 1)

    def test_a_kernel_without_copies_says_what_it_takes(self):
        assert repack.TMA_ROWS.holds(gemm(n=513))
        assert not repack.TMA_ROWS.holds(gemm(k=129))
        assert "\n" not in repack.TMA_ROWS.text

    def test_a_copy_is_declared_as_what_it_is(self):
        variant = catalog.find("cuda:gemm/20_tma_wgmma[bf16,NT,128x128x64]")
        assert declared(variant, variant.kernel.steps[1]) == (
            "const __nv_bfloat16* B", "__nv_bfloat16* packed_B", "int rows_B", "int columns_B", "int ldb",
            "int ld_packed_B",
        )  # fmt: skip


class TestBinder:
    """On paper: what would be passed."""

    def values(self, problem: Gemm, **more) -> Values:
        kernel = Kernel(
            "cuda", "gemm/x", "gemm", "", ("sm_90a",), (BF16,), ("map_A",),
            boxes={"A": operand_tile("A"), "B": operand_tile("B"), "C": output_tile(64)},
            **{"launch": Launch(128, (1, 1, 1), workspace=repack.bytes_of_copies), **more},
        )  # fmt: skip
        paper = Paper(SimpleNamespace(entries={}, arch="sm_90a"), LIMITS)
        return Values(paper, Variant(kernel, BF16, problem.layout, CONFIG), problem, paper.operands(problem))

    def test_a_map_is_of_the_operand_or_of_its_copy(self):
        values = self.values(gemm(k=129, lda=136))
        assert (values["map_A"].operand, values["map_A"].spec.strides) == ("A", (272,))
        assert (values["map_B"].operand, values["map_B"].offset) == ("", 0)
        both = self.values(gemm(m=3, k=129))
        assert both["map_B"].offset == both["packed_B"].offset == 1024
        assert [int(both[f"{size}_B"]) for size in ("rows", "columns", "ld_packed")] == [512, 129, 136]

    def test_a_map_that_cannot_be_is_zeros(self):
        assert self.values(gemm(n=513))["map_C"] is NO_MAP
        assert NO_MAP.tobytes() == bytes(128)
        assert self.values(gemm())["map_C"].operand == "C"

    def test_a_kernels_own_workspace_begins_behind_the_copies(self):
        own = Launch(128, (1, 1, 1), workspace=repack.behind_copies(lambda *_: 100))
        found = self.values(gemm("NT", 3, 5, 129), launch=own)["workspace"]
        assert (found.offset, found.nbytes) == (2560, 100)
        assert self.values(gemm(), launch=own)["workspace"].nbytes == 100

    def test_operands_that_begin_anywhere_are_seen_where_they_are_bound(self):
        buffers = {name: SimpleNamespace(address=address) for name, address in {"A": 256, "B": 514, "C": 776}.items()}
        assert placed(gemm(), buffers).unaligned == ("B", "C")
        assert placed(gemm(), dict.fromkeys("ABC", SimpleNamespace(address=512))) == gemm()
        assert [o.aligned for o in placed(gemm(), buffers).operands()] == [True, False, False]

    def test_a_kernel_without_copies_refuses_them_where_they_are_bound(self):
        variant = catalog.find("cuda:gemm/20_tma_wgmma[bf16,NT,128x128x64]")
        strict = Kernel(**{**vars(variant.kernel), "needs": (repack.TMA_ROWS,), "before": ()})
        buffers = dict.fromkeys("ABC", SimpleNamespace(address=8))
        with pytest.raises(UsageError, match="does not take 256x512x128: TMA takes rows"):
            KernelContender(Variant(strict, BF16, "NT", CONFIG), None).bind(None, gemm(), buffers)

    def test_a_launch_is_programmatic_by_a_number_of_the_configuration(self):
        launch = Launch(128, (1, 1, 1), programmatic=lambda config, problem, limits: config["PDL"])
        for number in (0, 1):
            assert launch_shape(launch, {"PDL": number}, gemm(), LIMITS).programmatic is bool(number)


@pytest.mark.parametrize(("arch", "ahead"), [("sm_80", False), ("sm_89", False), ("sm_90", True), ("sm_90a", True)])
def test_code_that_cannot_wait_is_not_launched_ahead(arch, ahead):
    shape = LaunchShape(grid=(1, 1, 1), block=(32, 1, 1), programmatic=True)
    assert for_code(shape, arch).programmatic is ahead


class TestSharedMemory:
    def test_rings_hold_whole_blocks_of_64_where_rows_run_along_m_or_n(self):
        config = {"BM": 128, "BN": 144, "BK": 64, "STAGES": 3}
        assert rules.ring_of_boxes(config, gemm("NT"), LIMITS) == 3 * (128 * (128 + 144) + 16)
        assert rules.ring_of_boxes(config, gemm("TN"), LIMITS) == 3 * (128 * (128 + 192) + 16)
        assert rules.ring_of_boxes({"BM": 128, "BN": 128, "BK": 64}, gemm("NN"), LIMITS) == 32784

    def test_a_box_lies_where_its_swizzle_repeats(self):
        box = TensorMap("bf16", (64, 64), (128,), (64, 64), "128B")
        assert list(broken_offsets(box, [0, 1024, 8192])) == []
        assert list(broken_offsets(box, [512])) == [
            "a box at byte 512 of shared memory, not a multiple of 1024: swizzle 128B repeats"
        ]
        assert list(broken_offsets(box, [64])) == ["a box at byte 64 of shared memory, not a multiple of 128"]
        plain = TensorMap("bf16", (64, 64), (128,), (64, 64))
        assert list(broken_offsets(plain, [128, 640])) == []

    @pytest.mark.parametrize("kernel", BOXED, ids=lambda k: k.label)
    def test_every_stage_of_a_kernel_begins_there(self, kernel):
        for variant in kernel.all_variants():
            problem = make_problem(variant, (512, 512, 512))
            maps = [kernel.boxes[name](variant.config, problem, LIMITS) for name in ("A", "B")]
            tiles = [rules.ring_of_boxes(variant.config | {"STAGES": 1, other: 0}, problem, LIMITS) - 16
                     for other in ("BN", "BM")]  # fmt: skip
            for stage in range(variant.config.get("STAGES", 1)):
                at = stage * sum(tiles)
                assert list(broken_offsets(maps[0], [at])) == list(broken_offsets(maps[1], [at + tiles[0]])) == []

    def test_owner_of_wgmma_gives_each_warp_16_rows(self):
        config = {"BM": 128, "BN": 64}
        owners = np.array([[rules.owner_of_wgmma(config, row, column) for column in range(64)] for row in range(128)])
        assert set(owners.flat) == set(range(rules.warpgroup_for_64_rows(config, None, None)))
        assert [owners[at] for at in ((0, 0), (0, 1), (0, 2), (1, 0), (8, 0), (0, 8))] == [0, 0, 1, 4, 0, 0]
        assert [owners[at] for at in ((16, 0), (63, 63), (64, 0), (127, 7))] == [32, 127, 128, 255]


GOOD = TensorMap("fp16", (100, 64), (256,), (128, 64), "128B")


@pytest.mark.parametrize(
    ("change", "address", "said"),
    [
        ({"element": "fp64"}, 256, "element 'fp64' is unknown"),
        ({"strides": ()}, 256, "rank 2, 0 strides"),
        ({"swizzle": "96B"}, 256, "swizzle '96B' is unknown"),
        ({"l2_promotion": 32}, 256, "l2_promotion=32"),
        ({}, 264, "globalAddress=0x108 is not a multiple of 16"),
        ({}, 0, "globalAddress is null"),
        ({"shape": (0, 64)}, 256, r"globalDim\[1\]=0"),
        ({"strides": (264,)}, 256, r"globalStrides\[0\]=264 not a multiple of 16"),
        ({"strides": (112,)}, 256, r"globalStrides\[0\]=112 is less than the 128 bytes"),
        ({"shape": (2, 100, 64), "strides": (12784, 128), "box": (1, 8, 64)}, 256, r"globalStrides\[1\]=12784 is less"),
        ({"box": (257, 64)}, 256, r"boxDim\[1\]=257"),
        ({"box": (8, 4)}, 256, "inner row is 8 bytes, not a multiple"),
        ({"box": (8, 72)}, 256, "inner row is 144 bytes, more than the 128"),
    ],
)
def test_a_map_that_the_driver_would_refuse_is_named(change, address, said):
    assert list(broken_rules(GOOD, 256)) == []
    (rule,) = broken_rules(TensorMap(**{**vars(GOOD), **change}), address)
    assert re.search(said, rule)


def test_types_of_16_bits_are_those_that_have_every_layout():
    for kernel in (k for k in BOXED if k.language == "cuda"):  # hand-written PTX has one type and one layout
        for type_ in (BF16, FP16):
            assert type_ not in kernel.types or set(kernel.fewer_layouts.get(type_.name, kernel.layouts)) == set(
                LAYOUTS
            )
