// 17 from linalg: C = A B in ops of linalg, of which a transform script makes cp.async, ldmatrix and mma.sync.
//
// Computes  C[m][n] = sum over k of A[m][k] B[k][n],  row-major, layout NN, fp16 with sums in fp16. M, N and K are
//           multiples of 32, rows of A and B begin at multiples of 16 bytes. Nothing here looks for an edge.
// Idea      What is computed, and how, are two texts. The first part of this file says what a block does: bring a tile
//           of A and one of B, multiply them, add up. The second part, `@__transform_main`, is a program about the
//           first: it names its ops and replaces them, step by step, by ops nearer to the machine.
//
// Tile      32 x 32 x 32, one warp a block: enough to see each step, and not more. 2 x 4 fragments of 16 x 8.
// Shared    As[32][32] and Bs[32][32], 2048 bytes each, without a swizzle: rows of 64 bytes, so that ldmatrix meets
//           conflicts.
// Sums      linalg.matmul adds to the type of its result. With fp32 the tile of C would have to be rounded by
//           fragments, which vector-to-gpu of LLVM 22 does not do; so sums are fp16, in mma's registers all the way.
// Limit     Nothing overlaps: every k-block is waited for, a warp is alone, and its tile is small. 13 and 14 show what
//           is missing; each is a few lines of script away (nvgpu.pipeline_shared_memory_copies for one).

!matrix = memref<?x?x!elt, strided<[?, 1]>>
!tile = memref<32x32x!elt, strided<[?, 1], offset: ?>>
!shared_tile = memref<32x32x!elt, #gpu.address_space<workgroup>>
!sums = memref<32x32x!elt>
!op = !transform.any_op
#times_32 = affine_map<(i) -> (32 * i)>

module attributes {transform.with_named_sequence, gpu.container_module} {
  memref.global "private" @As : !shared_tile = uninitialized {alignment = 16 : i64}     // cp.async writes 16 bytes
  memref.global "private" @Bs : !shared_tile = uninitialized {alignment = 16 : i64}

  // A host's function with a launch in it: only there can loops be given to threads. gpu-kernel-outlining takes the
  // body out as the kernel `gemm_kernel`. Its parameters are what the body uses, in the order in which it does. The
  // grid is of no meaning, since the harness launches. A block is 4 x 8 threads: chunks of 16 bytes along x.
  func.func @gemm(%A_ptr: memref<!elt>, %B_ptr: memref<!elt>, %C_ptr: memref<!elt>, %grid: index,
                  %M_32: i32, %N_32: i32, %K_32: i32, %lda_32: i32, %ldb_32: i32, %ldc_32: i32) {
    %one = arith.constant 1 : index
    %c4 = arith.constant 4 : index
    %c8 = arith.constant 8 : index
    gpu.launch blocks(%block_x, %block_y, %block_z) in (%grid_x = %grid, %grid_y = %grid, %grid_z = %one)
               threads(%x, %y, %z) in (%threads_x = %c4, %threads_y = %c8, %threads_z = %one) {
      %M = arith.index_cast %M_32 : i32 to index
      %N = arith.index_cast %N_32 : i32 to index
      %K = arith.index_cast %K_32 : i32 to index
      %lda = arith.index_cast %lda_32 : i32 to index
      %ldb = arith.index_cast %ldb_32 : i32 to index
      %ldc = arith.index_cast %ldc_32 : i32 to index
      %A = memref.reinterpret_cast %A_ptr to offset: [0], sizes: [%M, %K], strides: [%lda, 1] : memref<!elt> to !matrix
      %B = memref.reinterpret_cast %B_ptr to offset: [0], sizes: [%K, %N], strides: [%ldb, 1] : memref<!elt> to !matrix
      %C = memref.reinterpret_cast %C_ptr to offset: [0], sizes: [%M, %N], strides: [%ldc, 1] : memref<!elt> to !matrix
      %As = memref.get_global @As : !shared_tile
      %Bs = memref.get_global @Bs : !shared_tile
      %c0 = arith.constant 0 : index
      %c32 = arith.constant 32 : index
      %zero = arith.constant 0.0 : !elt
      // affine.apply and not arith.muli: vector-to-gpu of LLVM 22 takes every multiplication for one of fragments.
      %m = affine.apply #times_32(%block_y)
      %n = affine.apply #times_32(%block_x)

      %sums = memref.alloc() : !sums                            // in memory only until the script has moved it
      linalg.fill ins(%zero : !elt) outs(%sums : !sums)
      scf.for %k = %c0 to %K step %c32 {
        %a = memref.subview %A[%m, %k] [32, 32] [1, 1] : !matrix to !tile
        %b = memref.subview %B[%k, %n] [32, 32] [1, 1] : !matrix to !tile
        gpu.barrier                                             // everyone has read the tiles before
        linalg.copy {brings} ins(%a : !tile) outs(%As : !shared_tile)
        linalg.copy {brings} ins(%b : !tile) outs(%Bs : !shared_tile)
        gpu.barrier                                             // both tiles are there
        linalg.matmul ins(%As, %Bs : !shared_tile, !shared_tile) outs(%sums : !sums)
      }
      %c = memref.subview %C[%m, %n] [32, 32] [1, 1] : !matrix to !tile
      linalg.copy {stores} ins(%sums : !sums) outs(%c : !tile)
      gpu.terminator
    }
    return
  }

  // transform-interpreter runs this sequence, on the module, before any other pass. Values are handles: sets of ops.
  transform.named_sequence @__transform_main(%root: !op) {
    // 1. Cut. Copies: 8 rows a pass, a row and 8 elements a thread. The matmul, its sums' zeros and the store of C: in
    //    the 16 x 8 x 16 of mma.sync. The loops that come of it are short: unrolled.
    %brings = transform.structured.match ops{["linalg.copy"]} attributes {brings} in %root : (!op) -> !op
    %rows, %passes = transform.structured.tile_using_for %brings tile_sizes [8, 0] : (!op) -> (!op, !op)
    %chunk, %threads = transform.structured.tile_using_forall %rows num_threads [8, 4]
        (mapping = [#gpu.thread<y>, #gpu.thread<x>]) : (!op) -> (!op, !op)
    transform.loop.unroll %passes {factor = 4} : !op
    %matmul = transform.structured.match ops{["linalg.matmul"]} in %root : (!op) -> !op
    %product, %over_m, %over_n, %over_k = transform.structured.tile_using_for %matmul tile_sizes [16, 8, 16]
        : (!op) -> (!op, !op, !op, !op)
    transform.loop.unroll %over_k {factor = 2} : !op
    transform.loop.unroll %over_n {factor = 4} : !op
    transform.loop.unroll %over_m {factor = 2} : !op
    %fill = transform.structured.match ops{["linalg.fill"]} in %root : (!op) -> !op
    %zeros, %fill_m, %fill_n = transform.structured.tile_using_for %fill tile_sizes [16, 8] : (!op) -> (!op, !op, !op)
    transform.loop.unroll %fill_n {factor = 4} : !op
    transform.loop.unroll %fill_m {factor = 2} : !op
    %stores = transform.structured.match ops{["linalg.copy"]} attributes {stores} in %root : (!op) -> !op
    %part, %store_m, %store_n = transform.structured.tile_using_for %stores tile_sizes [16, 8]
        : (!op) -> (!op, !op, !op)
    transform.loop.unroll %store_n {factor = 4} : !op
    transform.loop.unroll %store_m {factor = 2} : !op

    // 2. Vectors: each piece of linalg becomes vector.transfer_read, vector.contract, vector.transfer_write.
    %function = transform.structured.match ops{["func.func"]} in %root : (!op) -> !op
    %vectors = transform.structured.vectorize_children_and_apply_patterns %function : (!op) -> !op
    transform.apply_patterns to %vectors {
      transform.apply_patterns.canonicalization
      transform.apply_patterns.memref.fold_memref_alias_ops
      transform.apply_patterns.vector.cast_away_vector_leading_one_dim
    } : !op
    transform.apply_cse to %vectors : !op

    // 3. Registers: what is written to `sums` and read again is handed on as a value, first inside a turn of the k
    //    loop, then from turn to turn. Then nobody reads `sums`, and it goes.
    transform.memref.erase_dead_alloc_and_stores %vectors : (!op) -> ()
    %hoisted = transform.structured.hoist_redundant_vector_transfers %vectors : (!op) -> !op
    transform.memref.erase_dead_alloc_and_stores %hoisted : (!op) -> ()
    transform.apply_patterns to %hoisted {
      transform.apply_patterns.canonicalization
    } : !op

    // 4. A warp: reads of 16 x 16 from shared memory become nvgpu.ldmatrix, contractions nvgpu.mma.sync, writes of
    //    16 x 8 the stores of each lane's elements.
    %warps = transform.apply_registered_pass "convert-vector-to-gpu" with options = {"use-nvgpu" = true} to %hoisted
        : (!op) -> !op

    // 5. Threads: the copies' loops become the thread's own turn, and its copies of 16 bytes to shared memory
    //    nvgpu.device_async_copy, in one group that is waited for.
    %launch = transform.structured.match ops{["gpu.launch"]} in %root : (!op) -> !op
    %mapped = transform.gpu.map_nested_forall_to_threads %launch block_dims = [4, 8, 1] sync_after_distribute = false
        : (!op) -> !op
    %host = transform.structured.match ops{["func.func"]} in %root : (!op) -> !op
    %async = transform.nvgpu.create_async_groups %host {bypass_l1} : (!op) -> !op
    transform.apply_patterns to %async {
      transform.apply_patterns.canonicalization
      transform.apply_patterns.memref.fold_memref_alias_ops
    } : !op
    transform.apply_cse to %async : !op
    transform.yield
  }
}
