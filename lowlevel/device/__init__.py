"""Devices that execute kernels. `protocol` says what the rest of the project may ask of one."""
