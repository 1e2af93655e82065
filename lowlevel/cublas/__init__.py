"""cuBLAS and cuBLASLt, called through ctypes: the yardstick that every table carries."""
