"""What a block of a Hopper kernel may ask for: each rule kept, broken, and at its limit."""

import pytest

from lowlevel.catalog import hopper
from lowlevel.dtypes import BF16
from lowlevel.hardware import GPUS
from lowlevel.problems.gemm import Gemm


class TestRegisters:
    @pytest.mark.parametrize(("threads", "entry"), [(128, 256), (256, 256), (384, 168), (512, 128), (640, 96)])
    def test_on_entry_the_file_is_shared_out_in_eights(self, threads, entry):
        assert GPUS["H200"].registers_per_sm == hopper.REGISTERS
        assert hopper.entry_registers(threads) == entry
        assert entry * threads <= 65536
        assert entry == 256 or (entry + 8) * threads > 65536

    @pytest.mark.parametrize(
        ("threads", "given", "taken"),
        [(384, 24, 240), (384, 40, 232), (256, 24, 256), (512, 32, 160), (384, 168, 168)],
    )
    def test_sums_that_fit(self, threads, given, taken):
        assert hopper.broken_trade(threads, given, taken) is None

    @pytest.mark.parametrize(
        ("threads", "given", "taken", "said"),
        [
            (384, 40, 240, "40 + 2 x 240 = 520 registers, and 3 warpgroups entered with 504"),
            (384, 48, 232, "48 + 2 x 232 = 512 registers"),
            (512, 32, 168, "32 + 3 x 168 = 536 registers, and 4 warpgroups entered with 512"),
            (384, 20, 240, "setmaxnreg.dec 20"),
            (384, 16, 240, "setmaxnreg.dec 16"),
            (384, 24, 244, "setmaxnreg.inc 244"),
            (384, 24, 264, "setmaxnreg.inc 264"),
            (384, 176, 232, "must have the 168 of the entry between them"),
            (384, 24, 160, "must have the 168 of the entry between them"),
            (320, 24, 240, "320 threads are no whole warpgroups"),
            (128, 24, 240, "one that gives registers and one that takes"),
        ],
    )
    def test_sums_that_do_not(self, threads, given, taken, said):
        assert said in hopper.broken_trade(threads, given, taken)


class TestRing:
    CONFIG = {"BM": 128, "BN": 144}

    @pytest.mark.parametrize(
        ("layout", "tiles"), [("NT", (16384, 18432)), ("NN", (16384, 24576)), ("TT", (16384, 18432))]
    )
    def test_tiles_are_rows_of_128_bytes_or_whole_boxes(self, layout, tiles):
        """144 rows that run along k; else three boxes of 64 rows, for 64, 64 and 16 columns."""
        assert hopper.operand_tiles(self.CONFIG, Gemm(1, 1, 1, BF16, layout)) == tiles
        assert hopper.operand_tiles({"BM": 144, "BN": 128}, Gemm(1, 1, 1, BF16, "TT"))[0] == 24576

    def test_a_ring_has_two_barriers_a_stage(self):
        assert hopper.ring_bytes(4, (16384, 32768), 32768) == 4 * 49152 + 32768 + 64
        assert hopper.ring_bytes(1, (16384, 16384)) == 32784

    def test_what_begins_at_multiples_of_1024(self):
        assert hopper.broken_tiles((16384, 18432), 18432) is None
        assert "tile 1 has 1000 bytes" in hopper.broken_tiles((16384, 1000), 0)
        assert "the staging has 512 bytes" in hopper.broken_tiles((16384,), 512)


class TestBarriers:
    @pytest.mark.parametrize(("warpgroups", "blocks", "arrivals"), [(1, 1, 4), (2, 1, 8), (3, 1, 12), (2, 2, 16)])
    def test_a_stage_is_emptied_by_every_warp_that_reads_it(self, warpgroups, blocks, arrivals):
        assert hopper.empty_arrivals(warpgroups, blocks) == arrivals

    @pytest.mark.parametrize(("count", "right"), [(0, False), (1, True), (1048575, True), (1048576, False)])
    def test_arrivals(self, count, right):
        assert (hopper.broken_arrivals(count) is None) == right

    @pytest.mark.parametrize(
        ("count", "right"), [(0, False), (16, True), (24, False), (1048560, True), (1048576, False)]
    )
    def test_bytes(self, count, right):
        assert (hopper.broken_expected_bytes(count) is None) == right

    @pytest.mark.parametrize("used", [[], [(1, 32)], [(15, 384)], [(1, 128), (2, 128), (1, 128)]])
    def test_named_ones(self, used):
        assert hopper.broken_named_barriers(used, 384) is None

    @pytest.mark.parametrize(
        ("used", "said"),
        [
            ([(0, 128)], "0 is __syncthreads'"),
            ([(1, 128), (16, 128)], "named barrier 16: 1 to 15"),
            ([(1, 100)], "a multiple of 32"),
            ([(1, 0)], "a multiple of 32"),
            ([(1, 416)], "the block has 384"),
            ([(1, 128), (1, 256)], "of 128 threads and of 256"),
        ],
    )
    def test_named_ones_that_are_none(self, used, said):
        assert said in hopper.broken_named_barriers(used, 384)
