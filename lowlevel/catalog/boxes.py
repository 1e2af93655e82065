"""The tensor maps of Hopper's kernels: in which boxes TMA moves an operand."""

from __future__ import annotations

from lowlevel.catalog.entry import Config, Sized
from lowlevel.catalog.repack import as_fetched, tma_takes
from lowlevel.errors import UsageError
from lowlevel.hardware import Limits
from lowlevel.problems.base import Operand, Problem
from lowlevel.tensormap import TensorMap

#: Bytes of a row of a box: what the 128-byte swizzle spans.
SPAN = 128


def k_major(problem: Problem, name: str) -> bool:
    """Whether the rows of A or B run along k."""
    return problem.layout[0] == "N" if name == "A" else problem.layout[1] == "T"


def operand_tile(name: str, shared_by: str = "") -> Sized:
    """The boxes that make up a tile of A or B, BM or BN by BK, where BK elements are 128 bytes.

    K-major: the tile is one box. MN-major: a box is BK rows of 64 elements (of 16 bits) along m or n, and the tile as
    many as it takes, the last perhaps not full. shared_by: the configuration's number of blocks in a cluster that fetch
    the tile together and multicast it; each fetches one of so many slices of it: rows of m or n where K-major, else
    rows of k of every box.
    """

    def boxes(config: Config, problem: Problem, limits: Limits) -> TensorMap:  # noqa: ARG001
        operand = as_fetched(problem, name)
        along_k, parts = k_major(problem, name), config[shared_by] if shared_by else 1
        rows = config["BM" if name == "A" else "BN"] if along_k else config["BK"]
        columns = SPAN // operand.dtype.itemsize
        if rows % parts:
            raise UsageError(f"{name}'s boxes have {rows} rows, which {shared_by}={parts} blocks cannot share")
        return _map(operand, (rows // parts, columns))

    return boxes


def output_tile(rows: int, columns: int = 64) -> Sized:
    """Boxes of C, `rows` by `columns`, swizzled where a row is 128 bytes. None where TMA cannot take C's rows."""

    def boxes(config: Config, problem: Problem, limits: Limits) -> TensorMap | None:  # noqa: ARG001
        operand = as_fetched(problem, "C")
        return _map(operand, (rows, columns)) if tma_takes(operand) else None

    return boxes


def _map(operand: Operand, box: tuple[int, int]) -> TensorMap:
    size = operand.dtype.itemsize
    swizzle = "128B" if box[1] * size == SPAN else "none"
    return TensorMap(operand.element, operand.shape, (operand.leading * size,), box, swizzle)
