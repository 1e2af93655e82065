// The consumers of the fast family, gemm/25_fast and gemm/26_fp8: how a warpgroup writes C and goes from tile to tile;
// and the block that they are part of.
#pragma once

#include "fast_block.cuh"
#include "named_barrier.cuh"
#include "registers.cuh"
#include "slice_sums.cuh"

// Where a warp's sums go.
struct Writer {
    Boxes boxes;
    Epilogue epilogue;
    int row;         // of the warp's first in its tile
    int* workspace;  // where slices meet

    __device__ __forceinline__ void pack(Packed<COLUMNS>& packed, const Block& acc, int block, int piece, int m,
                                         int n) const {
        pack_columns<COLUMNS>(packed, acc, piece * COLUMNS, m + row + 64 * block, n + piece * COLUMNS, boxes.M,
                              boxes.N, epilogue);
    }

    __device__ __forceinline__ void store(const Packed<COLUMNS>& packed, int block, int piece, int m, int n) {
        boxes.store(packed, m + row + 64 * block, n + piece * COLUMNS);
    }

    // C of the sums that all slices have left in the workspace.
    __device__ __forceinline__ void store_slices(const Meeting& meeting, int m, int n) {
#pragma unroll 1
        for (int i = 0; i < BLOCKS * PIECES; ++i) {
            const int block = i / PIECES, piece = i % PIECES;
            BoxSums sums;
            meeting.add_up(sums, block, piece);
            Packed<COLUMNS> packed;
            pack_columns<COLUMNS>(packed, sums, 0, m + row + 64 * block, n + piece * COLUMNS, boxes.M, boxes.N,
                                  epilogue);
            store(packed, block, piece, m, n);
        }
    }

    __device__ __forceinline__ void store_block(const Block& acc, int block, int m, int n) {
#pragma unroll
        for (int piece = 0; piece < PIECES; ++piece) {
            Packed<COLUMNS> packed;
            pack(packed, acc, block, piece, m, n);
            store(packed, block, piece, m, n);
        }
    }

    // The sums of an item of work.
    __device__ __forceinline__ void finish(const Block (&acc)[BLOCKS], const Work& item) {
        if constexpr (SPLITS > 1) {
            if (item.m + row >= boxes.M || item.n >= boxes.N) return;  // beyond the edge, in every slice
            const Meeting meeting(workspace, item);
            meeting.write(acc);
            if (meeting.come_last()) store_slices(meeting, item.m, item.n);
        } else {
#pragma unroll
            for (int block = 0; block < BLOCKS; ++block) store_block(acc[block], block, item.m, item.n);
        }
    }
};

// Consumers that share a tile, stored when it is finished; or one that takes turns with the other.
__device__ __forceinline__ void consume_whole(Reader reader, Writer writer, Work work, int group) {
    const int turn = 1 + group, other = 2 - group, stride = PINGPONG ? 2 : 1;
    if (PINGPONG && group == 1) {
        reader.at.skip(work.count_k_blocks());
        work.next(1);
    }
    for (bool waits = group == 1; work.inside(); waits = true) {
        Block acc[BLOCKS];
        if (PINGPONG && waits) named_barrier_sync(turn, 256);  // the other has started all its products
        reader.begin(acc, [] {});
        const int k_blocks = work.count_k_blocks();
#pragma unroll 1
        for (int k_block = 1; k_block < k_blocks; ++k_block) reader.go_on(acc);
        if (PINGPONG && work.has(1)) named_barrier_arrive(other, 256);
        const Work done = work;
        work.next(stride);
        reader.end(acc);
        if (PINGPONG) reader.at.skip(done.count_k_blocks(1));
        writer.finish(acc, done);
    }
}

// The same, C kept packed and stored behind the next tile's first k-blocks.
__device__ __forceinline__ void consume_packed(Reader reader, Writer writer, Work work) {
    constexpr int ALL = BLOCKS * PIECES;
    Block acc[BLOCKS];
    Packed<COLUMNS> packed[ALL];
    int m, n, k_block = 1;
    reader.begin(acc, [] {});
    while (true) {
#pragma unroll 1
        for (; k_block < work.k_blocks; ++k_block) reader.go_on(acc);
        m = work.m, n = work.n;
        work.next(1);
        reader.end(acc);
#pragma unroll
        for (int i = 0; i < ALL; ++i) writer.pack(packed[i], acc[i / PIECES], i / PIECES, i % PIECES, m, n);
        if (!work.inside()) break;
        reader.begin(acc, [] {});
        k_block = 1;
#pragma unroll
        for (int i = 0; i < ALL; ++i) {
            if (i > 0 && k_block < work.k_blocks) {
                reader.go_on(acc);
                ++k_block;
            }
            writer.store(packed[i], i / PIECES, i % PIECES, m, n);
        }
    }
#pragma unroll
    for (int i = 0; i < ALL; ++i) writer.store(packed[i], i / PIECES, i % PIECES, m, n);
}

// The same without a copy: of two blocks of rows one is stored while the other is multiplied. No condition stands
// between products and stores: the compiler would wait for all products before it.
__device__ __forceinline__ void consume_halves(Reader reader, Writer writer, Work work) {
    Block acc[BLOCKS];
    int m, n;
    reader.begin(acc, [] {});
    while (true) {
#pragma unroll 1
        for (int k_block = 1; k_block < work.k_blocks; ++k_block) reader.go_on(acc);
        m = work.m, n = work.n;
        work.next(1);
        wgmma_wait<1>();
        wgmma_fence_registers(acc[0]);
        writer.store_block(acc[0], 0, m, n);
        reader.end(acc);
        if (!work.inside()) break;
        reader.begin(acc, [&] { writer.store_block(acc[BLOCKS - 1], 1, m, n); });
    }
    writer.store_block(acc[BLOCKS - 1], 1, m, n);
}

// The consumers, as OVERLAP and PINGPONG have it.
__device__ __forceinline__ void consume_tiles(Reader reader, Writer writer, Work work, int group) {
    if constexpr (OVERLAP == 2)
        consume_halves(reader, writer, work);
    else if constexpr (OVERLAP == 1)
        consume_packed(reader, writer, work);
    else
        consume_whole(reader, writer, work, group);
}

// A block from its beginning to its end. `consume` is what each warpgroup of consumers does, `group` its number.
template <class Consume>
__device__ __forceinline__ void run_block(const TensorMap& map_A, const TensorMap& map_B, const TensorMap& map_C,
                                          Output* C, int M, int N, int K, int ldc, int* workspace,
                                          const unsigned char* gpc_of_sm, const Epilogue& epilogue, Consume consume) {
    extern __shared__ __align__(1024) char memory[];
    const Shared shared = {memory};
    const int group = __shfl_sync(0xffffffff, threadIdx.x / 128, 0), warp = threadIdx.x / 32;  // group: uniform
    const bool by_tma = reinterpret_cast<unsigned long long>(C) % 16 == 0 && ldc * sizeof(Output) % 16 == 0;
    const int needed = (K + SPAN * BK - 1) / (SPAN * BK) * SPAN;  // whole spans: TMA reads zeros beyond the edge
    const int k_blocks = SPLITS > 1 ? max(needed, SPLITS) : needed;  // no slice is without
    if (threadIdx.x == 128 * CONSUMERS) {
        prefetch_map(&map_A);
        prefetch_map(&map_B);
        if (by_tma) prefetch_map(&map_C);
    }
    begin_block(shared, workspace, gpc_of_sm);

    if (group == CONSUMERS) {
        if constexpr (TRADE) give_registers<KEPT>();
        if (threadIdx.x == 128 * CONSUMERS)
            produce(&map_A, &map_B, shared, Work(M, N, k_blocks, place_of(shared)), workspace);
        return;
    }
    if constexpr (TRADE) take_registers<TAKEN>();
    const Work work(M, N, k_blocks, place_of(shared));
    const int first_block = PINGPONG ? 0 : group * BLOCKS;
    const Reader reader(shared.ring(), shared.full(), shared.empty(), first_block);
    const int row = 64 * first_block + warp % 4 * 16;
    Writer writer = {{&map_C, shared.boxes(warp), C, M, N, ldc, by_tma}, epilogue, row, workspace};
    consume(reader, writer, work, group);
    writer.boxes.finish();
}
