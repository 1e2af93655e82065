"""What the tests are for: kernels with one line broken are found out, on the GPU.

Each mutation changes one expression of a kernel or of a header, in a copy beside which the header lies; `lowlevel
verify COPY --as KERNEL` must then say that it is wrong. The copies as they are must be right.
"""

import pytest

from lowlevel import cli, paths
from lowlevel.device.cuda.driver import probe

pytestmark = pytest.mark.skipif(bool(probe()), reason=str(probe()))

#: More tiles than SMs and a long loop, where warps drift apart; few tiles; cut ones.
SHAPES = ("2304x2176x1024", "512x512x4096", "257x129x65")
SWIZZLE, RING, WIDE = "gemm/12_swizzle", "gemm/13_multistage", "gemm/14_wide"
TILE = "operand_tile.cuh"
KERNEL = ""
ONLY = ("--dtype", "bf16", "--layout", "NT", "--repeats", "3")

#: what is broken -> (kernel, the header that it is in or KERNEL, the expression, what stands in its place)
MUTATIONS = {
    "12 stores without the XOR": (
        SWIZZLE,
        KERNEL,
        "= swizzled<ROW_BYTES>(row, chunk)",
        "= row * ROW_BYTES + chunk * 16",
    ),
    "12 loads A without the XOR": (
        SWIZZLE,
        KERNEL,
        "swizzled<ROW_BYTES>(warp_m + lane % 16, lane / 16)",
        "(warp_m + lane % 16) * ROW_BYTES + lane / 16 * 16",
    ),
    "12 overwrites what others read": (SWIZZLE, KERNEL, "__syncthreads();  // everyone is done", "// everyone is done"),
    "12 reads what is not whole": (SWIZZLE, KERNEL, "__syncthreads();  // both tiles", "// both tiles"),
    "13 waits for one group too few": (RING, KERNEL, "cp_async_wait<STAGES - 2>();", "cp_async_wait<STAGES - 1>();"),
    "13 has no barrier": (RING, KERNEL, "__syncthreads();  // this block is whole", "// this block is whole"),
    "13 copies without the XOR": (
        RING,
        TILE,
        "tile + swizzled<Tile::ROW_BYTES>(row, chunk)",
        "tile + row * Tile::ROW_BYTES + chunk * 16",
    ),
    "14 copies without the XOR": (
        WIDE,
        TILE,
        "tile + swizzled<Tile::ROW_BYTES>(row, chunk)",
        "tile + row * Tile::ROW_BYTES + chunk * 16",
    ),
    "14 waits for one group too few": (
        WIDE,
        KERNEL,
        "cp_async_wait<STAGES - 2>();\n                __syncthreads()",
        "cp_async_wait<STAGES - 1>();\n                __syncthreads()",
    ),
    "14 has no barrier": (WIDE, KERNEL, "__syncthreads();  // the next block is whole", "// the next block is whole"),
}


def verified(kernel: str, folder, header: str = KERNEL, old: str = "", new: str = "") -> int:
    """The exit code of `lowlevel verify` for a copy of the kernel, the header beside it, with `old` replaced."""
    root = paths.kernel_root() / "cu"
    copy = folder / "copy.cu"
    copy.write_text((root / f"{kernel}.cu").read_text())
    if header:
        (folder / header).write_text((root / "include" / header).read_text())
    if old:
        changed = folder / header if header else copy
        text = changed.read_text()
        assert text.count(old) == 1
        changed.write_text(text.replace(old, new))
    return cli.main(["verify", str(copy), "--as", f"cuda:{kernel}", *ONLY, *SHAPES])


@pytest.mark.parametrize("kernel", [SWIZZLE, RING, WIDE])
def test_a_copy_is_right(kernel, tmp_path):
    assert verified(kernel, tmp_path, TILE) == 0


@pytest.mark.parametrize("broken", MUTATIONS)
def test_what_is_broken_is_found_out(broken, tmp_path, capsys):
    assert verified(MUTATIONS[broken][0], tmp_path, *MUTATIONS[broken][1:]) == 1
    assert "wrong" in capsys.readouterr().out
