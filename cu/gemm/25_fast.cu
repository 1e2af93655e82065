// 25 fast: C = A B on Hopper's tensor cores, one source for every size.
//
// Computes  C[m][n] = epilogue(sum over k of A[m][k] B[k][n]),  layouts NT, NN, TN, TT, any M, N, K.
// Idea      The same producer, ring and persistent consumers as before, with the choices left open that decide at one
//           size or another. Large products are limited by power: what helps is fewer bytes moved for the same sums,
//           so large tiles, clusters that share operands, and neighbouring tiles on one GPC. Small ones are limited by
//           latency: many small tiles, a deep ring, and the launch overlapped with the one before. All of it is in
//           fast_block.cuh, the producer, and fast_consumer.cuh: 26_fp8.cu has the same.
//
// Numbers   BM x BN x 64    the tile of a block
//           STAGES          of the ring
//           CONSUMERS       warpgroups that multiply, 1 or 2
//           PINGPONG        0: they share a tile, by rows. 1: each takes whole tiles, in turn: one multiplies while the
//                           other stores; their main loops keep an order
//           CLUSTER_M, _N   1 x 1, 2 x 1 (two tiles along m share B) or 1 x 2 (along n, sharing A)
//           STORE_BOXES     of shared memory that a warp stores C through
//           OVERLAP         what hides the stores of consumers that share a tile. 0: nothing. 1: C waits packed in
//                           registers and is stored behind the next tile's first k-blocks. 2: of two blocks of 64 rows,
//                           the upper is stored behind the lower's last products, the lower behind the next tile's
//           ALONG_N, GROUP  order of the tiles, cluster_order.cuh
//           SNAKE           1: every other strip of tiles is walked back, and every other tile of a cluster has its k
//                           from the last to the first. Of the operand that a wave of tiles shares with the one before,
//                           L2 may hold only the end: then that is what the wave begins with. Which tiles go backwards
//                           depends on the number of clusters alone, and so do the bits. 2: and C is the first to leave
//                           L2
//           GPC             1, 2: clusters of a GPC take neighbouring tiles, gpc_claim.cuh; 2: also those left over
//                           when every GPC has eight
//           PDL             1: the launch begins while the kernel before it ends
//           SPLITS          slices that a tile's k-blocks are cut into, each an item of work for a cluster like a whole
//                           tile: for tiles too few to keep all clusters busy. With OVERLAP = 0
//
// Threads   CONSUMERS warpgroups; then the producer, one thread of a warp. Where sums need more registers than an equal
//           share, the producer is a warpgroup too, so that it can hand its registers over.
// Shared    STAGES x (A tile, B tile), then a box ring of every consumer warp, then the barriers `full` and `empty` of
//           each stage and the claimed place. Tiles begin at multiples of 1024 bytes, for the 128-byte swizzle.
// Barriers  full[stage]    one arrival, of the producer, and the tiles' bytes, from this block's copies and its peer's
//           empty[stage]   one arrival of each warp that reads the stage, in both blocks of a cluster: either may fill
//           Both blocks of a cluster take the same tiles in the same order, so a peer is at most a ring ahead.
// Memory    workspace: counters of claimed places, and where slices meet, their counts and sums: slice_sums.cuh. Counts
//           are zero before and after. Who sums up has been told of operands, which the producer asks for when the
//           launch before has ended: so nobody uses what that one still does.
// Tails     TMA reads zeros beyond the edge and does not write there. Rows of A and B that it cannot read have been
//           copied to rows that it can (repack.cuh); rows of C that it cannot write the warps write themselves.
// Limit     Power at 4096 and above, where the clock falls with what is drawn. Below 1024 the launch.

#include "fast_consumer.cuh"
#include "repack.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, 1)
gemm(const __grid_constant__ TensorMap map_A, const __grid_constant__ TensorMap map_B,
     const __grid_constant__ TensorMap map_C, Output* __restrict__ C, int M, int N, int K, int ldc, int* workspace,
     const unsigned char* __restrict__ gpc_of_sm, Epilogue epilogue) {
    run_block(map_A, map_B, map_C, C, M, N, K, ldc, workspace, gpc_of_sm, epilogue, consume_tiles);
}
