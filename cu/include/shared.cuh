#pragma once

// An address of shared memory as the 32 bits that instructions take. PTX ISA, 'cvta'.
__device__ __forceinline__ unsigned shared_address(const void* pointer) {
    return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}
