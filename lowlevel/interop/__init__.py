"""Calling kernels from Python on arrays that others made: numpy's, and device arrays of any library.

`arrays` recognises them, `dlpack` speaks that protocol through ctypes, `streams` reads stream handles, `shapes` makes a
problem of them, `session` keeps what was compiled and bound, `result` is what comes back, `runner` is `lowlevel.run`.
"""
