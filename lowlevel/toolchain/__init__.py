"""From source to binary, without a driver: .cu by NVRTC, .ptx by nvJitLink; logs, resources, SASS, cache."""
