"""The CUDA driver API as a device. Only this package imports `cuda.bindings.driver`."""
