"""The callables of the catalog that size the launches of what only moves data."""

import pytest

from lowlevel import hardware
from lowlevel.catalog import rules
from lowlevel.catalog.select import select
from lowlevel.commands.verify import problems_of
from lowlevel.dtypes import ELEMENTS, MOVE16, MOVE32
from lowlevel.problems.move import Copy, Transpose

LIMITS = hardware.find("H200")


@pytest.mark.parametrize(("type_", "grid"), [(MOVE32, (3, 2, 1)), (MOVE16, (2, 1, 1))])
def test_square_tiles_count_words_of_either_type(type_, grid):
    """32 words are 32 elements of 4 bytes, or 64 of 2."""
    assert rules.square_tiles(4)({"TILE": 32}, Transpose(33, 96, type_), LIMITS) == grid


@pytest.mark.parametrize(("unit", "type_", "blocks"), [(4, MOVE32, 3 * 5), (4, MOVE16, 2 * 3), (16, MOVE16, 1 * 1)])
def test_tiles_in_order_are_counted_in_words_or_vectors(unit, type_, blocks):
    config = {"TILE_M": 64, "TILE_N": 32}
    assert rules.tiles_in_order(unit)(config, Transpose(129, 160, type_), LIMITS) == (blocks, 1, 1)


def test_tiles_in_order_are_not_held_to_the_y_axis_of_a_grid():
    shape = Transpose(2**31 - 1, 1, MOVE16)
    assert rules.tiles_in_order(4)({"TILE_M": 64, "TILE_N": 32}, shape, LIMITS) == (2**24, 1, 1)


def test_warps_of_rows():
    assert rules.warp_rows({"ROWS": 8}, Transpose(1, 1, MOVE32), LIMITS) == (32, 8, 1)


@pytest.mark.parametrize(("elements", "blocks"), [(1, 1), (4 * 1024, 1), (4 * 1024 + 1, 2), (12 * 1024, 3)])
def test_a_copy_has_a_block_for_every_piece(elements, blocks):
    """1024 words of 16 bytes are 4096 elements of 4 bytes."""
    config = {"THREADS": 256, "UNROLL": 4}
    assert rules.pieces(config, Copy(1, elements, MOVE32), LIMITS) == (blocks, 1, 1)


@pytest.mark.parametrize("variant", select(["cuda:transpose/05_vectorised"]), ids=lambda v: v.type.name)
def test_verification_meets_whole_tiles_with_and_without_aligned_rows(variant):
    """Otherwise the vectors of a kernel with large tiles would never be tried: of A and C, and of either alone."""
    per_vector = 16 // ELEMENTS[variant.type.operand].bytes
    side_m, side_n = variant.config["TILE_M"] * per_vector, variant.config["TILE_N"] * per_vector
    whole = [p for p in problems_of(variant, "") if p.m >= side_m and p.n >= side_n]
    aligned = {(p.lda % per_vector == 0, p.ldc % per_vector == 0) for p in whole}
    assert aligned == {(True, True), (True, False), (False, True), (False, False)}


def test_owner_of_mma_gives_each_lane_its_two_rows_and_columns_of_every_16_by_8():
    config = {"BM": 64, "BN": 32, "WM": 32, "WN": 16}
    owners = [[rules.owner_of_mma(config, row, column) for column in range(32)] for row in range(64)]
    assert rules.threads_of_warps(config, None, None) == 128
    assert {thread for row in owners for thread in row} == set(range(128))
    assert [owners[r][c] for r, c in ((0, 0), (0, 1), (0, 2), (1, 0), (8, 0), (16, 8))] == [0, 0, 1, 4, 0, 0]
    assert (owners[0][16], owners[32][0], owners[39][23]) == (32, 64, 127)


def test_owner_in_strips_gives_pairs_of_columns_to_lanes_in_turn():
    config = {"BM": 64, "BN": 64, "WM": 32, "WN": 32}
    owners = [[rules.owner_in_strips(config, row, column) for column in range(64)] for row in range(64)]
    assert {thread for row in owners for thread in row} == set(range(128))
    assert [owners[r][c] for r, c in ((0, 0), (0, 1), (0, 2), (1, 0), (2, 0), (16, 30))] == [0, 0, 1, 16, 0, 15]
    assert (owners[0][32], owners[32][0], owners[33][63]) == (32, 64, 127)
