"""A tile in shared memory, rows of chunks, padded or swizzled, and the addresses at which warps meet it."""

from __future__ import annotations

from dataclasses import dataclass

from lowlevel.errors import UsageError
from lowlevel.study.bank_rules import LANES
from lowlevel.study.expression import Formula

#: Rows over which a layout is examined: XOR patterns repeat after far fewer.
_ROWS = 128


@dataclass(frozen=True)
class Layout:
    """row_bytes of data a row, in chunks of `chunk_bytes`, then `pad` bytes. xor: what a chunk's number is XORed with,
    a formula over row."""

    row_bytes: int
    chunk_bytes: int
    pad: int = 0
    xor: str = "0"

    def __post_init__(self):
        if self.row_bytes < self.chunk_bytes or self.row_bytes % self.chunk_bytes:
            raise UsageError(f"a row of {self.row_bytes} bytes is no multiple of the {self.chunk_bytes} of an access")
        if self.pad < 0:
            raise UsageError(f"a pad of {self.pad} bytes: 0 or more")
        object.__setattr__(self, "_xor", Formula(self.xor, ("row",)))

    @property
    def chunks(self) -> int:
        return self.row_bytes // self.chunk_bytes

    def address(self, row: int, chunk: int) -> int:
        """The byte where a chunk of a row begins."""
        return row * (self.row_bytes + self.pad) + self.chunk_bytes * (chunk ^ self._xor(row=row))

    def strays(self) -> str | None:
        """One line on a chunk that the XOR moves out of its row, where it overwrites another; None if there is none."""
        for row in range(_ROWS):
            for chunk in range(self.chunks):
                moved = chunk ^ self._xor(row=row)
                if not 0 <= moved < self.chunks:
                    return (
                        f"'{self.xor}' moves chunk {chunk} of row {row} to place {moved} of a row that has "
                        f"{self.chunks} chunks: data is overwritten"
                    )
        return None


@dataclass(frozen=True)
class Walk:
    """How a warp meets a tile: formulas over lane for the row and the chunk of each lane, from a first chunk on."""

    name: str
    row: str
    chunk: str
    #: How many chunks of a row one access spans: the next access along the row begins so much later.
    step: int = 1

    def addresses(self, layout: Layout, lanes: int = LANES, first: int = 0) -> list[int]:
        """Byte addresses of one access, `first` chunks along the row."""
        row, chunk = Formula(self.row, ("lane",)), Formula(self.chunk, ("lane",))
        return [layout.address(row(lane=lane), first + chunk(lane=lane)) for lane in range(lanes)]


def walks(layout: Layout, access: str) -> list[Walk]:
    """The usual ways to meet a tile: ldmatrix reads 16 rows by two chunks (x4), 8 by two (x2) or 8 by one (x1); other
    accesses go along the rows, as tiles are filled, or down a column."""
    if access.startswith("ldmatrix"):
        if access.endswith("x4"):
            return [Walk("16 rows, 2 chunks", "lane % 16", "lane / 16", 2 if layout.chunks > 1 else 1)]
        name, chunk = ("8 rows, 2 chunks", "lane / 8") if access.endswith("x2") else ("8 rows", "0")
        return [Walk(name, "lane % 8", chunk, 2 if access.endswith("x2") else 1)]
    chunks = layout.chunks
    along = Walk("along the rows", f"lane / {chunks}", f"lane % {chunks}", min(chunks, LANES))
    return [along, Walk("down a column", "lane", "0")]


def starts(layout: Layout, walk: Walk, lanes: int) -> range:
    """The first chunks of accesses that together cover a row, and stay within it."""
    spanned = max(Formula(walk.chunk, ("lane",))(lane=lane) for lane in range(lanes)) + 1
    if spanned > layout.chunks:
        raise UsageError(
            f"'{walk.chunk}' spans {spanned} chunks, and a row of {layout.row_bytes} bytes has {layout.chunks}"
        )
    return range(0, layout.chunks - spanned + 1, walk.step)
