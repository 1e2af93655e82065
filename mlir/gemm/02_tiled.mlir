// 02 tiled: C = A B, tiles of A and B shared by a block. The same algorithm as cu/gemm/02_tiled.cu.
//
// Computes  C[m][n] = sum over k of A[m][k] B[k][n],  fp32, row-major, layout NN, any M, N, K.
// Idea      A block of 32 x 32 threads computes a 32 x 32 tile of C. It walks along K in steps of 32, loads a tile of A
//           and one of B into shared memory, and every float loaded is used by 32 threads.
//
// Dialects  New here: memory of the block, as `workgroup` attributions of the function, in its own address space, so
//           that memref.load becomes ld.shared; gpu.barrier; and affine.for, whose constant bounds are unrolled.
// Tile      32 x 32 x 32; block (x, y) of the grid owns C's tile of columns 32 x and rows 32 y.
// Threads   Thread (x, y) loads A[y][x] and B[y][x] of each pair of tiles and computes C[y][x] of its tile.
// Shared    As[32][32] and Bs[32][32], 4096 bytes each. In the inner loop a warp reads one word of As, for all lanes,
//           and 32 neighbouring words of Bs: no bank conflict.
// Tails     An element outside A or B is loaded as zero, which adds nothing to any sum.
// Limit     An FMA still needs a fresh word of Bs: the load unit.

!matrix = memref<?x?x!elt, strided<[?, 1]>>
!tile = memref<32x32x!elt, #gpu.address_space<workgroup>>

gpu.module @tiled {
  gpu.func @gemm(%A_ptr: memref<!elt>, %B_ptr: memref<!elt>, %C_ptr: memref<!elt>,
                 %M_32: i32, %N_32: i32, %K_32: i32, %lda_32: i32, %ldb_32: i32, %ldc_32: i32)
      workgroup(%As: !tile {llvm.align = 16 : i64}, %Bs: !tile {llvm.align = 16 : i64})  // .shared .align 16 .b8 [4096]
      kernel attributes {known_block_size = array<i32: 32, 32, 1>} {
    %M = arith.index_cast %M_32 : i32 to index
    %N = arith.index_cast %N_32 : i32 to index
    %K = arith.index_cast %K_32 : i32 to index
    %lda = arith.index_cast %lda_32 : i32 to index
    %ldb = arith.index_cast %ldb_32 : i32 to index
    %ldc = arith.index_cast %ldc_32 : i32 to index
    %A = memref.reinterpret_cast %A_ptr to offset: [0], sizes: [%M, %K], strides: [%lda, 1] : memref<!elt> to !matrix
    %B = memref.reinterpret_cast %B_ptr to offset: [0], sizes: [%K, %N], strides: [%ldb, 1] : memref<!elt> to !matrix
    %C = memref.reinterpret_cast %C_ptr to offset: [0], sizes: [%M, %N], strides: [%ldc, 1] : memref<!elt> to !matrix

    %c0 = arith.constant 0 : index
    %c32 = arith.constant 32 : index
    %zero = arith.constant 0.0 : !elt
    %x = gpu.thread_id x                                                    // %tid.x
    %y = gpu.thread_id y
    %block_x = gpu.block_id x                                               // %ctaid.x
    %block_y = gpu.block_id y
    %m_block = arith.muli %block_y, %c32 : index
    %n_block = arith.muli %block_x, %c32 : index
    %m = arith.addi %m_block, %y : index
    %n = arith.addi %n_block, %x : index
    %m_inside = arith.cmpi ult, %m, %M : index
    %n_inside = arith.cmpi ult, %n, %N : index

    %sum = scf.for %k_block = %c0 to %K step %c32 iter_args(%sum_before = %zero) -> (!elt) {
      %a_k = arith.addi %k_block, %x : index
      %b_k = arith.addi %k_block, %y : index
      %a_k_inside = arith.cmpi ult, %a_k, %K : index
      %b_k_inside = arith.cmpi ult, %b_k, %K : index
      %a_inside = arith.andi %m_inside, %a_k_inside : i1
      %b_inside = arith.andi %b_k_inside, %n_inside : i1
      %a = scf.if %a_inside -> (!elt) {                                     // a branch, or a predicate: ptxas chooses
        %loaded = memref.load %A[%m, %a_k] : !matrix                        // ld.global.b32
        scf.yield %loaded : !elt
      } else {
        scf.yield %zero : !elt
      }
      %b = scf.if %b_inside -> (!elt) {
        %loaded = memref.load %B[%b_k, %n] : !matrix
        scf.yield %loaded : !elt
      } else {
        scf.yield %zero : !elt
      }
      memref.store %a, %As[%y, %x] : !tile                                  // st.shared.b32
      memref.store %b, %Bs[%y, %x] : !tile
      gpu.barrier                                   // bar.sync 0: both tiles are whole before anyone reads them
      %sum_of_tiles = affine.for %k = 0 to 32 iter_args(%sum_so_far = %sum_before) -> (!elt) {
        %a_k_th = memref.load %As[%y, %k] : !tile                           // ld.shared.b32, or four of them as v4
        %b_k_th = memref.load %Bs[%k, %x] : !tile                           // ld.shared.b32
        %sum_then = math.fma %a_k_th, %b_k_th, %sum_so_far : !elt           // fma.rn.f32
        affine.yield %sum_then : !elt
      }
      gpu.barrier                                   // everyone is done reading before the next tiles overwrite these
      scf.yield %sum_of_tiles : !elt
    }

    %inside = arith.andi %m_inside, %n_inside : i1
    scf.if %inside {
      memref.store %sum, %C[%m, %n] : !matrix                               // st.global.b32
    }
    gpu.return
  }
}
