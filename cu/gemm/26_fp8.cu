// 26 fp8: C = scale_a A times scale_b B, with A and B of 8 bits (e4m3), on Hopper's tensor cores.
//
// Computes  C[m][n] = epilogue(scale_a scale_b sum over k of A[m][k] B[n][k]),  A and B e4m3, C bf16, any M, N, K.
// Layout    NT alone: wgmma takes operands of 8 bits K-major only.
// Idea      Half as many bytes are twice as many k in the same tiles: a row of 128 bytes is 128 k, an instruction takes
//           32, and all else is 25's block (fast_block.cuh, fast_consumer.cuh). What is new:
//           Scales. e4m3 has four bits of significand and reaches from 2^-9 to 448, so whoever makes A and B of wider
//           numbers divides by a scale first. It is one number a matrix here, and is multiplied in where C is stored.
//           Promotion. The tensor core adds 32 products at a time to a sum of which it keeps about 14 bits, cut off
//           and not rounded: errors grow with K. `PROMOTE` ends the sum after so many k and adds it to one in fp32.
//
// Numbers   as in 25_fast.cu, BK being 128, and
//           PROMOTE         0: fast accumulation, sums stay in the tensor core from the first k to the last.
//                           128, 256 ..: k that a partial sum takes in before it is added to the sum in fp32
// Registers with PROMOTE    sums of all the rows of a warpgroup, and partial ones of 64 rows: blocks of 64 rows take
//                           turns with those. 128 x 192 or 256 x 128 shared by two warpgroups: 192 a thread, both
// Threads, shared memory, barriers, memory, tails: as in 25_fast.cu. SPLITS goes without PROMOTE.
// Limit     Power, as there. With PROMOTE a warpgroup's products stop while it adds: the other's must fill the gap, so
//           there are two, which share a tile and keep no order.

#include "fast_consumer.cuh"
#include "repack.cuh"

static_assert(PROMOTE % BK == 0 && SPAN <= STAGES, "whole k-blocks, and all of them in the ring at once");
static_assert(!PROMOTE || (CONSUMERS == 2 && !PINGPONG && OVERLAP == 0), "two that fill each other's gaps");

// A span of k-blocks times each block of 64 rows, in the partial sums, and these added to its sums. There is one set of
// partial sums: a block of rows is multiplied when the one before it has been added.
__device__ __forceinline__ void add_span(Block (&sums)[BLOCKS], Reader& reader) {
    const RingPosition<STAGES> begin = reader.at;
    Block partial;
#pragma unroll
    for (int block = 0; block < BLOCKS; ++block) {
        reader.at = begin;
#pragma unroll
        for (int i = 0; i < SPAN; ++i) {
            reader.wait();
            if (i == 0)
                reader.multiply<false>(partial, block);
            else
                reader.multiply<true>(partial, block);
            reader.at.advance();
        }
        wgmma_wait<0>();
        wgmma_fence_registers(partial);
        if (block == BLOCKS - 1) {
            RingPosition<STAGES> read = begin;
#pragma unroll
            for (int i = 0; i < SPAN; ++i, read.advance()) reader.release(read.stage);
        }
#pragma unroll
        for (int i = 0; i < BN / 2; ++i) sums[block][i] += partial[i];
    }
}

// Consumers that share a tile, their sums in fp32.
__device__ __forceinline__ void consume_promoted(Reader reader, Writer writer, Work work) {
    while (work.inside()) {
        Block sums[BLOCKS] = {};
#pragma unroll 1
        for (int k_block = 0; k_block < work.k_blocks; k_block += SPAN) add_span(sums, reader);
#pragma unroll
        for (int block = 0; block < BLOCKS; ++block) writer.store_block(sums[block], block, work.m, work.n);
        work.next(1);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
gemm(const __grid_constant__ TensorMap map_A, const __grid_constant__ TensorMap map_B,
     const __grid_constant__ TensorMap map_C, Output* __restrict__ C, int M, int N, int K, int ldc, int* workspace,
     const unsigned char* __restrict__ gpc_of_sm, const float* scale_a, const float* scale_b, Epilogue epilogue) {
    const auto consumers = [=](Reader reader, Writer writer, Work work, int group) {
        if (PDL) wait_for_prerequisites();  // the kernel before may have written the scales
        writer.epilogue.alpha *= *scale_a * *scale_b;
        if constexpr (PROMOTE)
            consume_promoted(reader, writer, work);
        else
            consume_tiles(reader, writer, work, group);
    };
    run_block(map_A, map_B, map_C, C, M, N, K, ldc, workspace, gpc_of_sm, epilogue, consumers);
}
