"""Shapes: as people write them, and the ones that find mistakes."""

from __future__ import annotations

import random
import re

from lowlevel.errors import UsageError

_SHAPE = re.compile(r"\d+(x\d+)*", re.IGNORECASE)
#: Kernels count rows and columns in 32-bit signed integers.
LARGEST = 2**31 - 1


def parse_shape(text: str) -> list[tuple[int, ...]]:
    """`4096`, `2048x2304x768`, or a list with commas. Each shape has one to three numbers of 1 to 2^31 - 1."""
    shapes = []
    for part in text.split(","):
        if not _SHAPE.fullmatch(part.strip()):
            raise UsageError(f"'{part}' is not a shape: write 4096, 2048x2304x768, or a list 1024,2048")
        numbers = tuple(int(n) for n in part.strip().lower().split("x"))
        if len(numbers) > 3 or not all(1 <= n <= LARGEST for n in numbers):
            raise UsageError(f"shape '{part}': one to three numbers, each 1 to {LARGEST}")
        shapes.append(numbers)
    return shapes


#: M, N for kernels that only move elements: tiles of up to 128 x 128, whole, with rows that are multiples of 16 bytes;
#: tiles cut at such a multiple; rows of A alone aligned, and of C alone. At these, vectors and single elements meet.
MOVE_SHAPES = ((256, 384), (264, 392), (257, 392), (264, 129))


def edge_shapes(BM: int, BN: int, BK: int, stages: int = 1, full: bool = False) -> list[tuple[int, int, int]]:
    """M, N, K around everything a tiled kernel counts: tiles, one short, one over, 1, primes, k-blocks at the
    pipeline's turning points, and more tiles than a GPU has SMs. `full` takes the product of the small ones."""
    blocks = sorted({1, max(1, stages - 1), stages, stages + 1, 2 * stages + 1})
    shapes = [
        (1, 1, 1),
        (BM, BN, BK),
        (BM - 1 or 1, BN - 1 or 1, BK - 1 or 1),
        (BM + 1, BN + 1, BK + 1),
        (2 * BM + 1, BN + 1, 2 * BK + 1),
        (257, 129, 65),
        (33, 127, 31),
        (1, 2 * BN + 3, 37),
        (2 * BM + 3, 1, 37),
        *((BM + 5, BN - 3 if BN > 3 else BN, BK * n) for n in blocks),
        (12 * BM + 1, 13 * BN - 1, BK + 2),
    ]
    if full:
        sizes = lambda b: (1, b - 1 or 1, b, b + 1, 2 * b + 1)  # noqa: E731
        shapes += [(m, n, k) for m in sizes(BM) for n in sizes(BN) for k in (1, BK, BK + 1, stages * BK)]
    return list(dict.fromkeys(shapes))


def few_edge_shapes(BM: int, BN: int, BK: int, stages: int = 1) -> list[tuple[int, int, int]]:
    """One of each kind of edge: a single element; a tile one short and one over, with rows that are no multiple of 16
    bytes; fewer k-blocks than the pipeline has stages and more than go round it twice, with rows that are; primes."""
    shapes = [
        (1, 1, 1),
        (BM - 1 or 1, BN - 1 or 1, BK - 1 or 1),
        (BM + 1, BN + 1, BK + 1),
        (BM + 8, BN, BK * max(1, stages - 1)),
        (BM, 2 * BN + 16, BK * (2 * stages + 1)),
        (257, 129, 65),
    ]
    return list(dict.fromkeys(shapes))


#: The sides of seeded shapes, and the most FLOP of one: those of the 8192 cube.
SEEDED_SIDES, SEEDED_K, SEEDED_FLOPS = (256, 8192), (128, 16384), 2 * 8192**3


def seeded_shapes(count: int, seed: int) -> list[tuple[int, int, int]]:
    """M, N, K that nobody chose, to see what a choice tuned on other shapes is worth.

    Each side is log-uniform: M and N in 256..8192, K in 128..16384. Of four shapes in a row two are rounded to
    multiples of 64, one to multiples of 8, and one is left as it falls. A shape of more FLOP than the 8192 cube is
    drawn again. Only `random()` is asked of the generator, since Python promises its sequence for a seed.
    """
    draw = random.Random(seed).random
    shapes: list[tuple[int, int, int]] = []
    while len(shapes) < count:
        unit = (64, 64, 8, 1)[len(shapes) % 4]
        m, n, k = (_log_uniform(*bounds, unit, draw()) for bounds in (SEEDED_SIDES, SEEDED_SIDES, SEEDED_K))
        if 2 * m * n * k <= SEEDED_FLOPS and (m, n, k) not in shapes:
            shapes.append((m, n, k))
    return shapes


def _log_uniform(low: int, high: int, unit: int, draw: float) -> int:
    """`draw` of 0..1 to low..high, each octave as likely, rounded to a multiple of `unit`."""
    return round(low * (high / low) ** draw / unit) * unit
