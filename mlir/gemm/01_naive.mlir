// 01 naive: C = A B, one thread for each element of C. The same algorithm as cu/gemm/01_naive.cu.
//
// Computes  C[i][j] = sum over k of A[i][k] B[k][j],  fp32, row-major, layout NN, any M, N, K >= 1.
// Idea      The product as its formula says it: a thread walks along a row of A and down a column of B.
//
// Dialects  gpu: the kernel, and who a thread is. memref: a pointer with a shape. scf: loops and branches as values.
//           arith, math: numbers. What each line becomes in PTX stands behind it.
// Tile      8 x 32: a block of 32 x 8 threads, x along a row of C, so that a warp reads one element of A and 32
//           neighbours of B at a time.
// Shared    None.
// Tails     A thread outside C does nothing.
// Limit     Two loads for each FMA: the caches.

!matrix = memref<?x?x!elt, strided<[?, 1]>>

// Left alone, LLVM unrolls the loop eightfold, in 90 registers: two blocks an SM.
#by_4 = #llvm.loop_annotation<unroll = <count = 4 : i32>>

gpu.module @naive {
  // With bare pointers a memref without dimensions is one 64-bit parameter; a matrix of unknown size would be seven:
  // two pointers, an offset, two sizes, two strides. So shapes are put on inside, and cost nothing: they are only what
  // addresses are computed from.
  gpu.func @gemm(%A_ptr: memref<!elt>, %B_ptr: memref<!elt>, %C_ptr: memref<!elt>,
                 %M_32: i32, %N_32: i32, %K_32: i32, %lda_32: i32, %ldb_32: i32, %ldc_32: i32)
      kernel attributes {known_block_size = array<i32: 32, 8, 1>} {          // .visible .entry gemm, .maxntid 32, 8, 1
    %M = arith.index_cast %M_32 : i32 to index                              // cvt.s64.s32: an index has 64 bits
    %N = arith.index_cast %N_32 : i32 to index
    %K = arith.index_cast %K_32 : i32 to index
    %lda = arith.index_cast %lda_32 : i32 to index
    %ldb = arith.index_cast %ldb_32 : i32 to index
    %ldc = arith.index_cast %ldc_32 : i32 to index
    %A = memref.reinterpret_cast %A_ptr to offset: [0], sizes: [%M, %K], strides: [%lda, 1] : memref<!elt> to !matrix
    %B = memref.reinterpret_cast %B_ptr to offset: [0], sizes: [%K, %N], strides: [%ldb, 1] : memref<!elt> to !matrix
    %C = memref.reinterpret_cast %C_ptr to offset: [0], sizes: [%M, %N], strides: [%ldc, 1] : memref<!elt> to !matrix

    %zero = arith.constant 0 : index
    %one = arith.constant 1 : index
    %no_sum = arith.constant 0.0 : !elt
    %j = gpu.global_id x                                                    // %ctaid.x * %ntid.x + %tid.x
    %i = gpu.global_id y
    %row_inside = arith.cmpi ult, %i, %M : index                            // setp.lt.u64
    %column_inside = arith.cmpi ult, %j, %N : index
    %inside = arith.andi %row_inside, %column_inside : i1                   // and.pred
    scf.if %inside {                                                        // @%p bra
      // A loop is a value: what it carries from turn to turn is named, and is its result.
      %sum = scf.for %k = %zero to %K step %one iter_args(%sum_before = %no_sum) -> (!elt) {
        %a = memref.load %A[%i, %k] : !matrix                               // ld.global.b32 at A + 4 (i lda + k)
        %b = memref.load %B[%k, %j] : !matrix                               // ld.global.b32
        %sum_after = math.fma %a, %b, %sum_before : !elt                    // fma.rn.f32
        scf.yield %sum_after : !elt
      } {loop_annotation = #by_4}
      memref.store %sum, %C[%i, %j] : !matrix                               // st.global.b32
    }
    gpu.return                                                              // ret
  }
}
