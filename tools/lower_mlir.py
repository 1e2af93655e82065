"""Writes the PTX that is committed beside each MLIR kernel: python tools/lower_mlir.py [NAME ...]

Names are the catalog's, `gemm/14` or a glob; all by default. Needs mlir-opt of exactly the release that the committed
PTX is of, so that whoever lowers a kernel gets the same bytes.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from lowlevel import catalog, paths
from lowlevel.catalog.select import select
from lowlevel.errors import LowlevelError, MissingError
from lowlevel.toolchain import cache, mlir


def requests(patterns):
    """One for each file and type of the kernels named."""
    found = [v for v in select(patterns) if v.kernel.language == "mlir"]
    made = [catalog.request(v, v.kernel.archs[0]) for v in found]
    return list({mlir.committed(request): request for request in made}.values())


def main(patterns):
    tool = mlir.required()
    if tool.version != mlir.VERSION:
        raise MissingError(f"{tool.path} is of LLVM {tool.version}; the committed PTX is of {mlir.VERSION}")
    for request in requests(patterns):
        path = mlir.committed(request)
        ptx = mlir.lower(request, tool)
        changed = not path.is_file() or path.read_text() != ptx
        cache.write(path, ptx.encode())
        path.chmod(0o644)
        print(f"{path.relative_to(paths.kernel_root())}: {'written' if changed else 'as it was'}")


if __name__ == "__main__":
    try:
        main(tuple(sys.argv[1:]))
    except LowlevelError as error:
        print(f"lower_mlir: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
