// Four neighbouring floats of a row, moved as 16 bytes where that is possible, one by one where it is not.
#pragma once

// Whether every fourth element of every row starts at a multiple of 16 bytes.
__device__ __forceinline__ bool aligned_to_16(const float* matrix, int leading) {
    return reinterpret_cast<unsigned long long>(matrix) % 16 == 0 && leading % 4 == 0;
}

// row[at] .. row[at + 3], zero from row[end] on. `wide`: row + at is a multiple of 16 bytes.
__device__ __forceinline__ float4 load_four(const float* row, int at, int end, bool wide) {
    if (wide && at + 4 <= end) return *reinterpret_cast<const float4*>(row + at);
    return make_float4(at < end ? row[at] : 0.0f, at + 1 < end ? row[at + 1] : 0.0f,
                       at + 2 < end ? row[at + 2] : 0.0f, at + 3 < end ? row[at + 3] : 0.0f);
}

// The reverse; nothing is written from row[end] on.
__device__ __forceinline__ void store_four(float* row, int at, int end, bool wide, float4 value) {
    if (wide && at + 4 <= end) {
        *reinterpret_cast<float4*>(row + at) = value;
        return;
    }
    if (at < end) row[at] = value.x;
    if (at + 1 < end) row[at + 1] = value.y;
    if (at + 2 < end) row[at + 2] = value.z;
    if (at + 3 < end) row[at + 3] = value.w;
}
