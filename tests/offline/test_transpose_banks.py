"""Bank conflicts of the transposes: the shared-memory addresses of whole warps, by the kernels' formulas, counted.

Shared memory has 32 banks of 4-byte words. A warp's access of 4 bytes a lane is one request; one of 16 bytes goes in
four phases of 8 lanes. A request or phase takes as many wavefronts as one bank has different words to deliver.
"""

import re
from collections import defaultdict

import pytest

from lowlevel import catalog, paths

LANES = range(32)
BANKS = 32


def wavefronts(addresses: list[int], width: int) -> int:
    """Of one warp's access of `width` bytes a lane, at byte addresses."""
    lanes = 128 // width
    return sum(phase(addresses[first : first + lanes], width) for first in range(0, len(addresses), lanes))


def phase(addresses: list[int], width: int) -> int:
    words = defaultdict(set)
    for address in addresses:
        assert address % width == 0
        for word in range(address // 4, (address + width - 1) // 4 + 1):
            words[word % BANKS].add(word)
    return max(map(len, words.values()))


def rows_of(kernel: str, side: int) -> range:
    """The numbers y + i ROWS that the warps of a block go through."""
    assert side % config(kernel)["ROWS"] == 0
    return range(side)


def config(kernel: str):
    return catalog.find(next(v.name for v in catalog.variants() if v.kernel.label == kernel)).config


def source(kernel: str) -> str:
    language, name = kernel.split(":")
    return (paths.kernel_root() / {"cuda": f"cu/{name}.cu", "ptx": f"ptx/{name}.ptx"}[language]).read_text()


class TestTheCounter:
    def test_neighbours_take_one_wavefront_and_a_broadcast_too(self):
        assert wavefronts([4 * lane for lane in LANES], 4) == 1
        assert wavefronts([64] * 32, 4) == 1
        assert wavefronts([2 * lane for lane in LANES], 2) == 1

    def test_a_stride_of_the_banks_takes_one_for_each_lane(self):
        assert wavefronts([128 * lane for lane in LANES], 4) == 32
        assert wavefronts([128 * lane for lane in LANES], 2) == 32
        assert wavefronts([8 * lane for lane in LANES], 4) == 2

    def test_wide_accesses_take_one_a_phase_at_least(self):
        assert wavefronts([16 * lane for lane in LANES], 16) == 4
        assert wavefronts([8 * lane for lane in LANES], 8) == 2
        assert wavefronts([128 * lane for lane in LANES], 16) == 32


class TestWords:
    """02 to 04: a warp writes a row of the tile, 32 n, and reads a column, 32 m. Planes add a constant to both."""

    def test_a_plain_tile_has_31_wavefronts_too_many(self):
        assert "tile[p][x][y + i * ROWS]" in source("cuda:transpose/02_shared")
        assert "typedef unsigned Tile[PACK][TILE][TILE];" in source("cuda:transpose/02_shared")
        address = lambda m, n: 4 * (32 * m + n)  # noqa: E731
        for y in rows_of("cuda:transpose/02_shared", 32):
            assert wavefronts([address(y, x) for x in LANES], 4) == 1
            assert wavefronts([address(x, y) for x in LANES], 4) == 32

    def test_a_padded_tile_has_none(self):
        assert "typedef unsigned Tile[PACK][TILE][TILE + 1];" in source("cuda:transpose/03_padded")
        address = lambda m, n: 4 * (33 * m + n)  # noqa: E731
        for y in rows_of("cuda:transpose/03_padded", 32):
            assert wavefronts([address(y, x) for x in LANES], 4) == 1
            assert wavefronts([address(x, y) for x in LANES], 4) == 1

    @pytest.mark.parametrize(("tile_m", "tile_n"), [(32, 32), (64, 32), (32, 64), (64, 64)])
    def test_a_swizzled_tile_has_none_and_loses_no_word(self, tile_m, tile_n):
        assert "return n ^ (m % WARP);" in source("cuda:transpose/04_swizzled")
        address = lambda m, n: 4 * (tile_n * m + (n ^ (m % 32)))  # noqa: E731
        for m in rows_of("cuda:transpose/04_swizzled", tile_m):
            for n0 in range(0, tile_n, 32):
                assert wavefronts([address(m, n0 + x) for x in LANES], 4) == 1
        for n in rows_of("cuda:transpose/04_swizzled", tile_n):
            for m0 in range(0, tile_m, 32):
                assert wavefronts([address(m0 + x, n) for x in LANES], 4) == 1
        used = {address(m, n) for m in range(tile_m) for n in range(tile_n)}
        assert used == set(range(0, 4 * tile_m * tile_n, 4))

    def test_the_ptx_takes_the_same_addresses(self):
        """Its four XOR values and constant offsets, as they stand in the file, against the formula."""
        text = source("ptx:transpose/04_swizzled")
        stores = re.findall(r"st\.shared\.b32 +\[%store(\d)(?:\+(\d+))?\], %word(\d+);", text)
        reads = re.findall(r"ld\.shared\.b32 +%word(\d+), \[%read(\d)(?:\+(\d+))?\];", text)
        stores = {int(word): (int(j), int(offset or 0)) for j, offset, word in stores}
        reads = {int(word): (int(j), int(offset or 0)) for word, j, offset in reads}
        assert sorted(stores) == sorted(reads) == list(range(16))
        address = lambda m, n: 4 * (64 * m + (n ^ (m % 32)))  # noqa: E731
        for y in range(8):
            for x in LANES:
                swizzled = [4 * (x ^ y) ^ 32 * j for j in range(4)]
                for word in range(16):
                    along, across = y + 8 * (word % 8), x + 32 * (word // 8)
                    j, offset = stores[word]
                    assert 256 * y + swizzled[j] + offset == address(along, across)
                    j, offset = reads[word]
                    assert 256 * x + swizzled[j] + offset == address(across, along)


@pytest.mark.parametrize("element_bytes", [2, 4])
@pytest.mark.parametrize("config", [dict(c) for k in catalog.kernels() if k.rung == "05_vectorised" for c in k.configs])
class TestVectors:
    """05: 16 bytes a lane, so four wavefronts are the least that a warp's access can take."""

    KERNEL = "cuda:transpose/05_vectorised"

    @staticmethod
    def address(config, element_bytes: int, n: int, mv: int) -> int:
        per_vector = 16 // element_bytes
        return 16 * (config["TILE_M"] * n + (mv ^ (n // per_vector % 8)))

    def test_writes_of_vectors(self, config, element_bytes):
        assert "return mv ^ (n / E % 8);" in source(self.KERNEL)
        assert "tile[n + r][swizzled(n, mv)] = turned[r];" in source(self.KERNEL)
        per_vector = 16 // element_bytes
        for first in range(0, config["TILE_M"] * config["TILE_N"], 32):
            for r in range(per_vector):
                places = [divmod(first + lane, config["TILE_N"]) for lane in LANES]
                addresses = [self.address(config, element_bytes, nv * per_vector + r, mv) for mv, nv in places]
                assert wavefronts(addresses, 16) == 4

    def test_reads_of_vectors(self, config, element_bytes):
        vectors = config["TILE_M"] * config["TILE_N"] * 16 // element_bytes
        for first in range(0, vectors, 32):
            places = [divmod(first + lane, config["TILE_M"]) for lane in LANES]
            assert wavefronts([self.address(config, element_bytes, n, mv) for n, mv in places], 16) == 4

    def test_no_vector_is_lost(self, config, element_bytes):
        rows = config["TILE_N"] * 16 // element_bytes
        used = {self.address(config, element_bytes, n, mv) for n in range(rows) for mv in range(config["TILE_M"])}
        assert used == set(range(0, 16 * rows * config["TILE_M"], 16))

    def test_element_by_element(self, config, element_bytes):
        """What the header says of tails: conflicts when writing, none when reading."""
        per_vector = 16 // element_bytes

        def address(m, n):
            return self.address(config, element_bytes, n, m // per_vector) + element_bytes * (m % per_vector)

        for m in range(8):
            assert wavefronts([address(m, lane) for lane in LANES], element_bytes) == {4: 4, 2: 8}[element_bytes]
        for n in range(8):
            assert wavefronts([address(lane, n) for lane in LANES], element_bytes) == 1
