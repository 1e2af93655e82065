"""What a Hopper configuration must keep: each rule kept, broken, and at its limit."""

import pytest

from lowlevel.catalog import hopper_rules as rules
from lowlevel.hardware import GPUS


class TestRegisters:
    @pytest.mark.parametrize(("threads", "entry"), [(128, 256), (256, 256), (384, 168), (512, 128), (640, 96)])
    def test_on_entry_the_file_is_shared_out_in_eights(self, threads, entry):
        assert rules.entry_registers(threads) == entry
        assert entry * threads <= 65536
        assert entry == 256 or (entry + 8) * threads > 65536

    @pytest.mark.parametrize(
        ("threads", "given", "taken"),
        [(384, 24, 240), (384, 40, 232), (256, 24, 256), (512, 32, 160), (384, 168, 168)],
    )
    def test_sums_that_fit(self, threads, given, taken):
        assert rules.registers(threads, given, taken) is None

    @pytest.mark.parametrize(
        ("threads", "given", "taken", "said"),
        [
            (384, 40, 240, "1 x 40 + 2 x 240 = 520 registers, and 3 warpgroups entered with 504"),
            (384, 32, 240, "wait for ever"),
            (512, 32, 168, "1 x 32 + 3 x 168 = 536 registers, and 4 warpgroups entered with 512"),
            (384, 20, 240, "setmaxnreg.dec 20"),
            (384, 16, 240, "setmaxnreg.dec 16"),
            (384, 24, 244, "setmaxnreg.inc 244"),
            (384, 24, 264, "setmaxnreg.inc 264"),
            (384, 176, 232, "must have the 168 of the entry between them"),
            (384, 24, 160, "must have the 168 of the entry between them"),
            (320, 24, 240, "320 threads are no whole warpgroups"),
            (128, 24, 240, "1 of 1 warpgroups give"),
        ],
    )
    def test_sums_that_do_not(self, threads, given, taken, said):
        assert said in rules.registers(threads, given, taken)

    def test_the_entry_can_be_another(self):
        assert rules.registers(384, 24, 240, entry=160) is not None
        assert "are 67584" in rules.registers(384, 24, 240, entry=176)

    def test_several_can_give(self):
        assert rules.registers(512, 24, 232, givers=2) is None
        assert rules.registers(512, 24, 240, givers=2) is not None


class TestRing:
    def test_the_limit_is_the_devices(self):
        assert GPUS["H200"].shared_per_block_optin == rules.SHARED

    def test_up_to_the_last_byte(self):
        tiles = (128 * 64 * 2, 256 * 64 * 2)
        assert rules.ring_bytes(4, tiles, 32768, 8) == 4 * 49152 + 32768 + 64
        assert rules.ring(4, tiles, 32768, 8) is None
        assert rules.ring(1, (231424,), 0, 128) is None
        assert rules.ring(1, (231424,), 0, 129) is not None

    @pytest.mark.parametrize(
        ("stages", "tiles", "staging", "said"),
        [
            (5, (16384, 32768), 0, "5 stages of 16384 + 32768 bytes, 0 of staging and 8 barriers are 245824 bytes"),
            (4, (16384, 32768), 65536, "and a block has 232448"),
            (0, (16384,), 0, "0 stages"),
            (2, (16384, 1000), 0, "tile 1 has 1000 bytes"),
            (2, (16384,), 512, "the staging has 512 bytes"),
        ],
    )
    def test_what_does_not_fit(self, stages, tiles, staging, said):
        assert said in rules.ring(stages, tiles, staging, 8)


class TestBarriers:
    @pytest.mark.parametrize(("number", "threads"), [(1, 32), (15, 384), (2, 1024)])
    def test_named_ones(self, number, threads):
        assert rules.named_barrier(number, threads) is None

    @pytest.mark.parametrize(
        ("number", "threads", "said"),
        [
            (0, 128, "0 is __syncthreads'"),
            (16, 128, "named barrier 16: 1 to 15"),
            (1, 100, "a multiple of 32"),
            (1, 0, "a multiple of 32"),
            (1, 416, "the block has 384"),
        ],
    )
    def test_named_ones_that_are_none(self, number, threads, said):
        assert said in rules.named_barrier(number, threads, 384)

    def test_a_number_has_one_count(self):
        assert rules.named_barriers([(1, 128), (2, 128), (1, 128)]) is None
        assert "of 128 threads and of 256" in rules.named_barriers([(1, 128), (1, 256)])
        assert "named barrier 16" in rules.named_barriers([(1, 128), (16, 128)])

    @pytest.mark.parametrize(("count", "right"), [(0, False), (1, True), (1048575, True), (1048576, False)])
    def test_arrivals(self, count, right):
        assert (rules.arrivals(count) is None) == right

    @pytest.mark.parametrize(
        ("count", "right"), [(0, False), (16, True), (24, False), (1048560, True), (1048576, False)]
    )
    def test_bytes(self, count, right):
        assert (rules.expected_bytes(count) is None) == right
