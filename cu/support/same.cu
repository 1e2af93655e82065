// Whether two buffers hold the same bytes: differ[0] is set to 1 where they do not.
//
//   a, b     16-byte aligned, `bytes` long; the last, incomplete 16 are compared one by one

extern "C" __global__ void same(const unsigned char* a, const unsigned char* b, long long bytes, unsigned* differ) {
    const long long first = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    const long long step = (long long)gridDim.x * blockDim.x;
    const uint4 *wide_a = (const uint4*)a, *wide_b = (const uint4*)b;
    const long long whole = bytes / 16;
    bool equal = true;
    for (long long i = first; i < whole; i += step) {
        const uint4 x = wide_a[i], y = wide_b[i];
        equal &= x.x == y.x && x.y == y.y && x.z == y.z && x.w == y.w;
    }
    for (long long i = 16 * whole + first; i < bytes; i += step) equal &= a[i] == b[i];
    if (!equal) *differ = 1;  // whoever writes it writes the same
}
