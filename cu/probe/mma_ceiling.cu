// Probe: what mma.sync reaches when nothing else is to be done.
//
// Computes  C[m][n] = sum over k of A[m][k] B[n][k], 512 x 64 x 32, `repetitions` times over: bf16 or fp16, C and its
//           sums fp32. The blocks share the repetitions, each adds up its own, and C is their mean, so that it tells
//           one repetition too few. There are `copies` of C, more than blocks: each block writes one at least.
// Measures  The tensor cores' rate with all operands in registers, which no kernel made of mma.sync exceeds:
//           2 x 512 x 64 x 32 x repetitions operations in the time of the launch.
// Tile      A warp's is 64 x 64, 4 x 8 times 16 x 8; one block of 8 warps an SM, two for each of its four tensor cores.
//           A lane holds 128 sums, 32 words of A and 32 of B.
// Inputs    Come from memory and fill a bf16's 8 bits of significand, as real data does: how many bits change says how
//           much power the chip needs, and so at which clock it may run. They are integers whose sums are exact in
//           fp32: the second 16 k all but undo what the first added (lowlevel/problems/ceiling.py).

#include "mma.cuh"

constexpr int M = 512, N = 64, K = 32;
constexpr int TILES_M = 4, TILES_N = N / MMA_N, STEPS = K / MMA_K;
constexpr int THREADS = 256;
static_assert(THREADS / 32 * TILES_M * MMA_M == M, "eight warps of 64 rows");

extern "C" __global__ void __launch_bounds__(THREADS, 1)
mma_ceiling(const Operand* __restrict__ A, const Operand* __restrict__ B, float* __restrict__ C,
            int repetitions, int copies) {
    const int lane = threadIdx.x % 32, warp_m = threadIdx.x / 32 * TILES_M * MMA_M;
    const unsigned* a_word = reinterpret_cast<const unsigned*>(A) + (warp_m + lane / 4) * K / 2 + lane % 4;
    const unsigned* b_word = reinterpret_cast<const unsigned*>(B) + lane / 4 * K / 2 + lane % 4;

    unsigned a[STEPS][TILES_M][4], b[STEPS][TILES_N][2];
#pragma unroll
    for (int step = 0; step < STEPS; ++step) {
#pragma unroll
        for (int i = 0; i < TILES_M; ++i)
#pragma unroll
            for (int part = 0; part < 4; ++part)  // mma.cuh's map: 8 rows further for 1 and 3, 4 words for 2 and 3
                a[step][i][part] = a_word[(MMA_M * i + part % 2 * 8) * K / 2 + step * MMA_K / 2 + part / 2 * 4];
#pragma unroll
        for (int j = 0; j < TILES_N; ++j)
#pragma unroll
            for (int part = 0; part < 2; ++part)
                b[step][j][part] = b_word[MMA_N * j * K / 2 + step * MMA_K / 2 + part * 4];
    }

    Sums sums[TILES_M][TILES_N];
    const int mine = repetitions / gridDim.x + (blockIdx.x < repetitions % gridDim.x);
#pragma unroll 1
    for (int repetition = 0; repetition < mine; ++repetition)
#pragma unroll
        for (int step = 0; step < STEPS; ++step)
#pragma unroll
            for (int i = 0; i < TILES_M; ++i)
#pragma unroll
                for (int j = 0; j < TILES_N; ++j) mma(sums[i][j], a[step][i], b[step][j]);

    for (int copy = blockIdx.x; copy < copies; copy += gridDim.x)
#pragma unroll
        for (int i = 0; i < TILES_M; ++i)
#pragma unroll
            for (int j = 0; j < TILES_N; ++j)
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    const int m = copy * M + warp_m + MMA_M * i + 8 * half + lane / 4, n = MMA_N * j + lane % 4 * 2;
                    *reinterpret_cast<float2*>(C + (long long)m * N + n) =
                        make_float2(sums[i][j].at(2 * half) / mine, sums[i][j].at(2 * half + 1) / mine);
                }
}
