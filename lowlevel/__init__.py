"""GPU kernels in CUDA C++, PTX and MLIR, and the harness that compiles, launches, checks and times them.

`lowlevel.run("gemm/02_tiled", a, b)` computes with one of them; the rest is the command `lowlevel`.
"""

__version__ = "0.1.0"


def __getattr__(name: str):
    """`run` is imported when it is asked for: most users of the package need no device."""
    if name == "run":
        from lowlevel.interop.runner import run

        return run
    raise AttributeError(f"module 'lowlevel' has no attribute '{name}'")
