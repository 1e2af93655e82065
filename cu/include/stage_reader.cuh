// A ring of tiles of A and B as a warpgroup multiplies them: it waits for a stage, starts its products, and hands back
// the stage before, whose products are finished by then.
#pragma once

#include "cluster.cuh"
#include "mbarrier.cuh"
#include "stage_ring.cuh"
#include "tma_tile.cuh"
#include "wgmma.cuh"

// TileA, TileB: tma_tile.cuh. BLOCKS: of 64 rows of A. COUNT: stages. BLOCKS_OF_CLUSTER: 1, or 2 that both fill it.
template <class TileA, class TileB, int BLOCKS, int COUNT, int BLOCKS_OF_CLUSTER>
struct StageReader {
    static constexpr int N = TileB::SIDE_OF_TILE;
    static constexpr unsigned STAGE_BYTES = TileA::BYTES + TileB::BYTES;
    static constexpr int STEPS = 4;  // of 16 k, in a row of 128 bytes
    typedef float Block[N / 2];  // a thread's sums of 64 rows

    unsigned full, empty;    // barriers of stage 0; `empty` is this lane's: in block `lane` of the cluster
    MatrixDescriptor a, b;   // in stage 0, A's from this warpgroup's first row
    RingPosition<COUNT> at;  // the stage to read next

    // Addresses of the first stage and of its barriers; the warpgroup's first block of A.
    __device__ __forceinline__ StageReader(unsigned ring, unsigned full, unsigned empty, int first_block)
        : full(full), empty(empty), a(matrix_descriptor(ring + first_block * WGMMA_BLOCK_BYTES)),
          b(matrix_descriptor(ring + TileA::BYTES)) {
        const unsigned lane = threadIdx.x % 32;
        if (BLOCKS_OF_CLUSTER > 1 && lane < BLOCKS_OF_CLUSTER) this->empty = map_to_rank(empty, lane);
    }

    __device__ __forceinline__ void wait() const { mbarrier_wait(full + 8 * at.stage, at.parity); }

    // Block `block` of 64 rows times B, added to its sums, or in their place: a group.
    template <bool ADD>
    __device__ __forceinline__ void multiply(Block& acc, int block) const {
        const unsigned offset = at.stage * STAGE_BYTES;
        const MatrixDescriptor rows = a.advance(offset + block * WGMMA_BLOCK_BYTES), columns = b.advance(offset);
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < STEPS; ++k)
            wgmma<N, TileA::ALONG_SIDE, TileB::ALONG_SIDE>(
                acc, rows.advance(k * WGMMA_K_STEP_BYTES<TileA::ALONG_SIDE>),
                columns.advance(k * WGMMA_K_STEP_BYTES<TileB::ALONG_SIDE>), ADD || k > 0);
        wgmma_commit();
    }

    // A warp has read a stage: it tells every block that fills it.
    __device__ __forceinline__ void release(unsigned stage) const {
        const unsigned barrier = empty + 8 * stage;
        if (BLOCKS_OF_CLUSTER > 1) {
            if (threadIdx.x % 32 < BLOCKS_OF_CLUSTER) mbarrier_arrive_at(barrier);
        } else {
            if (threadIdx.x % 32 == 0) mbarrier_arrive(barrier);
        }
    }

    // A tile's first k-block. `between`: what to do while the first block of rows is multiplied.
    template <class Between>
    __device__ __forceinline__ void begin(Block (&acc)[BLOCKS], Between between) {
        wait();
        multiply<false>(acc[0], 0);
        between();
        if (BLOCKS > 1) multiply<false>(acc[BLOCKS - 1], 1);
        at.advance();
    }

    // Each further one; the stage of the one before it is handed back once its products are finished.
    __device__ __forceinline__ void go_on(Block (&acc)[BLOCKS]) {
        wait();
#pragma unroll
        for (int block = 0; block < BLOCKS; ++block) multiply<true>(acc[block], block);
        wgmma_wait<BLOCKS>();
        release(at.before());
        at.advance();
    }

    // All products of the tile are finished.
    __device__ __forceinline__ void end(Block (&acc)[BLOCKS]) {
        wgmma_wait<0>();
#pragma unroll
        for (int block = 0; block < BLOCKS; ++block) wgmma_fence_registers(acc[block]);
        release(at.before());
    }
};
