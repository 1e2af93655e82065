"""What the tests are for: kernels with one expression broken are found out, on the GPU.

Each mutation changes one expression of a kernel or of a header, in a copy beside which the header lies; `lowlevel
verify COPY --as KERNEL` must then say that it is wrong, or that it hangs. The copies as they are must be right.

Only what hardware shows reliably is here: what is read too early was asked for a moment before, or is waited for by
nobody; what hangs has nobody who could end it. Left out are mistakes that hardware may forgive: no `fence.proxy.async`
before a TMA store (23), no `fence.mbarrier_init`, no barrier in 21 or at the start of a cluster (24), and a stage given
back one k-block early, whose next copy arrives when it has long been read.
"""

import json
from dataclasses import dataclass

import pytest

from lowlevel import cli, paths
from lowlevel.device.cuda.driver import probe

on_gpu = pytest.mark.skipif(bool(probe()), reason=str(probe()))

ROOT = paths.kernel_root() / "cu"
#: More tiles than SMs and a long loop, where warps drift apart; few tiles; cut ones.
SHAPES = ("2304x2176x1024", "512x512x4096", "257x129x65")
#: For rings, more k-blocks than any has stages; and one launch, since one that hangs costs its whole deadline.
RING_SHAPES = ("512x512x4096", "--kind", "integer")
#: Fewer k-blocks than slices: most sums are zero.
FEW_SHAPES = ("257x129x65",)
ONLY = ("--dtype", "bf16", "--layout", "NT", "--repeats", "3", "--json")
DEADLINE = "20"

SWIZZLE, STAGED, WIDE = "gemm/12_swizzle", "gemm/13_multistage", "gemm/14_wide"
SPLIT = "gemm/16_split_k"
RING, SPECIALISED, CLUSTER = "gemm/21_ring", "gemm/22_warp_specialised", "gemm/24_cluster"
HOPPER = (RING, SPECIALISED, CLUSTER)
KERNEL = ""  # instead of a header's name
OPERANDS, STAGES, TILES = "operand_tile.cuh", "stage_ring.cuh", "wgmma_tile.cuh"
SUMS = "split_sums.cuh"

#: A small tile and a ring of two: the next k-block was asked for less time ago than memory takes.
SMALL = ("BM=64", "BN=64", "BK=32", "WM=32", "WN=32", "STAGES=2")
TWO_STAGES = ("STAGES=2",)
#: Warps that look for each other.
MEETING = ("SPLITS=32", "LOOKS=64")
#: Those that come first do not wait for the others.
LEAVING = ("SPLITS=32", "LOOKS=1")

#: What `verify` says: the verdict, or the reason for it. A barrier that is told more than its phase takes is in no
#: defined state: then any of them.
WRONG, HANGS = ("wrong",), ("no answer in",)
ANY = (*WRONG, *HANGS, "CUDA_ERROR")


@dataclass(frozen=True)
class Mutation:
    """`old`, in the kernel or in a header, becomes `new`. numbers: of the copy's configuration. said: what is found."""

    kernel: str
    old: str
    new: str
    header: str = KERNEL
    numbers: tuple[str, ...] = ()
    said: tuple[str, ...] = WRONG


MUTATIONS = {
    "12 stores without the XOR": Mutation(
        SWIZZLE, "= swizzled<ROW_BYTES>(row, chunk)", "= row * ROW_BYTES + chunk * 16"
    ),
    "12 loads A without the XOR": Mutation(
        SWIZZLE,
        "swizzled<ROW_BYTES>(warp_m + lane % 16, lane / 16)",
        "(warp_m + lane % 16) * ROW_BYTES + lane / 16 * 16",
    ),
    "12 overwrites what others read": Mutation(SWIZZLE, "__syncthreads();  // everyone is done", "// everyone is done"),
    "12 reads what is not whole": Mutation(SWIZZLE, "__syncthreads();  // both tiles", "// both tiles"),
    "13 waits for one group too few": Mutation(STAGED, "cp_async_wait<STAGES - 2>();", "cp_async_wait<STAGES - 1>();"),
    "13 has no barrier": Mutation(STAGED, "__syncthreads();  // this block is whole", "// this block is whole"),
    "13 copies without the XOR": Mutation(
        STAGED, "tile + swizzled<Tile::ROW_BYTES>(row, chunk)", "tile + row * Tile::ROW_BYTES + chunk * 16", OPERANDS
    ),
    "14 copies without the XOR": Mutation(
        WIDE, "tile + swizzled<Tile::ROW_BYTES>(row, chunk)", "tile + row * Tile::ROW_BYTES + chunk * 16", OPERANDS
    ),
    "14 waits for one group too few": Mutation(
        WIDE,
        "cp_async_wait<STAGES - 2>();\n                __syncthreads()",
        "cp_async_wait<STAGES - 1>();\n                __syncthreads()",
        numbers=SMALL,
    ),
    "14 has no barrier": Mutation(WIDE, "__syncthreads();  // the next block is whole", "// the next block is whole"),
    "16 writes a sum of zero as zero": Mutation(
        SPLIT, "return __float_as_uint(sum) == 0 ? -0.0f : sum;", "return sum;", SUMS, numbers=MEETING, said=HANGS
    ),
    "16 counts every slice as one": Mutation(SPLIT, "slice == 0 ? 65 - SPLITS : 1", "1", SUMS, numbers=MEETING),
    "16 forgets what was left": Mutation(SPLIT, "Count left = left_in(now);", "Count left = 0;", SUMS, numbers=LEAVING),
    "21 does not wait for its tiles": Mutation(RING, "mbarrier_wait(full + stage * 8, parity);", "", said=ANY),
    "21 never flips the parity": Mutation(RING, "stage = 0, parity ^= 1;", "stage = 0;", numbers=TWO_STAGES, said=ANY),
    "21 expects a chunk too many": Mutation(
        RING, "expect(barrier, STAGE_BYTES)", "expect(barrier, STAGE_BYTES + 16)", said=HANGS
    ),
    "22 does not wait for its tiles": Mutation(
        SPECIALISED, "mbarrier_wait(shared.full(at.stage), at.parity);", "", said=ANY
    ),
    "22 does not wait for room": Mutation(
        SPECIALISED, "mbarrier_wait(shared.empty(at.stage), at.parity ^ 1);", "", said=ANY
    ),
    "22 never flips the parity": Mutation(SPECIALISED, "parity ^= 1;", "", STAGES, said=ANY),
    "22 never says that a stage is empty": Mutation(
        SPECIALISED, "if (k_block > 0 &&", "if (k_block < 0 &&", said=HANGS
    ),
    "24 does not wait for room": Mutation(
        CLUSTER,
        "mbarrier_wait(shared.empty(at.stage), at.parity ^ 1);\n            mbarrier_arrive_expect",
        "mbarrier_arrive_expect",
        said=ANY,
    ),
    "24 asks twice for the first part": Mutation(
        CLUSTER, "barrier, part, (1 << PARTS) - 1)", "barrier, 0, (1 << PARTS) - 1)", TILES
    ),
    "24 sends what both need to one": Mutation(
        CLUSTER, "barrier, part, (1 << PARTS) - 1)", "barrier, part, 1)", TILES, said=HANGS
    ),
}

#: The kernels as they are, in every configuration that a mutation has.
RIGHT = list(dict.fromkeys((mutation.kernel, mutation.numbers) for mutation in MUTATIONS.values()))


def source(kernel: str, header: str):
    return ROOT / "include" / header if header else ROOT / f"{kernel}.cu"


def verified(kernel: str, folder, numbers: tuple[str, ...], mutation: Mutation | None = None) -> int:
    """The exit code of `lowlevel verify` for a copy of the kernel, mutated or with a copied header beside it."""
    copy = folder / "copy.cu"
    copy.write_text(source(kernel, KERNEL).read_text())
    header = mutation.header if mutation else TILES if kernel in HOPPER else OPERANDS
    changed = folder / header if header else copy
    text = source(kernel, header).read_text()
    changed.write_text(text.replace(mutation.old, mutation.new) if mutation else text)
    defined = [word for number in numbers for word in ("-D", number)]
    shapes = RING_SHAPES if kernel in HOPPER else FEW_SHAPES if kernel == SPLIT else SHAPES
    return cli.main(["verify", str(copy), "--as", f"cuda:{kernel}", *defined, *ONLY, "--deadline", DEADLINE, *shapes])


def runs_here(kernel: str, device) -> None:
    if kernel in HOPPER and device.limits.capability != (9, 0):
        pytest.skip(f"{kernel} needs sm_90, {device.name} is {device.limits.arch}")


@pytest.mark.parametrize("broken", MUTATIONS)
def test_what_is_to_be_broken_is_there_once(broken):
    """No GPU needed: kernels change, and a mutation that changes nothing finds nothing."""
    mutation = MUTATIONS[broken]
    assert source(mutation.kernel, mutation.header).read_text().count(mutation.old) == 1


@on_gpu
@pytest.mark.parametrize(("kernel", "numbers"), RIGHT)
def test_a_copy_is_right(kernel, numbers, tmp_path, device):
    runs_here(kernel, device)
    assert verified(kernel, tmp_path, numbers) == 0


@on_gpu
@pytest.mark.parametrize("broken", MUTATIONS)
def test_what_is_broken_is_found_out(broken, tmp_path, device, capsys):
    mutation = MUTATIONS[broken]
    runs_here(mutation.kernel, device)
    assert verified(mutation.kernel, tmp_path, mutation.numbers, mutation) == 1
    rows = json.loads(capsys.readouterr().out)
    found = [f"{row['verdict']}: {row['reason']}" for row in rows if row["verdict"] != "ok"]
    assert all(row["shape"] for row in rows), found  # it compiled
    assert all(any(words in what for words in mutation.said) for what in found), found
