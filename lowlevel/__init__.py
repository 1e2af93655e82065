"""GPU kernels in CUDA C++, PTX and MLIR, and the harness that compiles, launches, checks and times them."""

__version__ = "0.1.0"
