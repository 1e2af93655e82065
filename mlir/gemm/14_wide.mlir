// 14 wide: C = A B on Ampere's tensor cores, the fast one. The same algorithm as cu/gemm/14_wide.cu.
//
// Computes  C[m][n] = sum over k of A[m][k] B[n][k],  fp16 or bf16 in and out, fp32 sums, row-major, layout NT: rows of
//           both A and B run along k. Any M, N, K.
// Idea      A warp computes 64 x 64: an element read from shared memory is multiplied 64 times. There are two sets of
//           fragments: while the tensor cores multiply one, the other is loaded for the next 16 k. Copies from global
//           memory are started a few at a time in between. And C is written in whole lines.
//
// Dialects  12 and 13 name matrices and let nvgpu find addresses. Here every address and register counts, so this file
//           is written in nvvm, whose ops are PTX's instructions one by one, on pointers of llvm. nvgpu.mma.sync takes
//           no bf16 in LLVM 22; nvvm.mma.sync does. It wants a register of two bf16 as an i32 and one of two fp16 as a
//           vector<2xf16>: that is `!pair`, and the type's name is `#elt`. Both stand above this file with `!elt`.
// Loops     affine.for has constant bounds and is unrolled before anything else: `if` on its index costs nothing, and
//           the memrefs in memory space 5 (local) are indexed by constants, so that LLVM makes registers of them. They
//           must be allocated in the first block. scf.for is a loop of PTX.
//
// Tile      128 x 256 x 64. 8 warps of 64 x 64, 2 along m and 4 along n. A warp's tile is 4 x 8 fragments of 16 x 8,
//           the sums of one mma each. One step of 16 k is 32 mma, and 8 ldmatrix.
//           Blocks take the tiles 8 rows of tiles at a time, down each column of these.
// Threads   Thread t copies chunk t % 8, that is 16 bytes, 8 k, of rows t / 8 + 0, 32, 64 ... of A (4) and of B (8).
//           With r = lane / 4 and w = lane % 4 a lane holds, of each 16 x 8 sums, rows r and r + 8, columns 2 w and
//           2 w + 1; and so does ldmatrix deal out the fragments (ptx/gemm/14_wide.ptx draws them).
// Pipeline  Three stages: one is multiplied, the next is there or nearly so, the one after that is being copied.
//
//           step   multiplies   loads                      copies, for the block two ahead
//           0      set 0        set 1, step 1              A, all rows
//           1      set 1        set 0, step 2              B, rows   0 .. 127
//           2      set 0        set 1, step 3              B, rows 128 .. 255
//           3      set 1        set 0, step 0 of the       none; closes the group, waits for the next block's, and is
//                               next block                 the block's only barrier
// Shared    147456 bytes, dynamic, in three stages of 49152:
//           bytes      0 ..  16383  A[128][64], 128 bytes a row
//           bytes  16384 ..  49151  B[256][64]
//           and behind the loop the block's tile of C: bytes 8192 w .. 8192 w + 8191 are warp w's, 64 rows of 128.
//           Chunk c of row r lies at place c ^ (r % 8): 8 lanes of cp.async, ldmatrix and stores of C meet 8 different
//           groups of banks.
// Tails     What is outside A or B becomes zero in shared memory, and is never read. If rows do not begin at multiples
//           of 16 bytes a second, simple loop copies element by element. C is stored by elements where 16 bytes do not
//           fit.
// Limit     The tensor cores. On sm_90 mma.sync reaches two thirds of wgmma's rate, and the copies take shared memory
//           from ldmatrix. 128 sums and two sets of 32 leave 63 registers for all the rest.

!global = !llvm.ptr<1>
!shared = !llvm.ptr<3>
!four = !llvm.struct<(i32, i32, i32, i32)>
!sum = !llvm.struct<(f32, f32, f32, f32)>
!a_registers = memref<2x4x4x!pair, 5>       // set, fragment, which of its registers
!b_registers = memref<2x8x2x!pair, 5>
!sum_registers = memref<4x8x4xf32, 5>
#product = #nvvm.shape<m = 16, n = 8, k = 16>
#matrix = #nvvm.ld_st_matrix_shape<m = 8, n = 8>
#bits = #nvvm.ld_st_matrix_elt_type<b16>

gpu.module @wide {
  // The ring, whose size the launch names: an external array of no length is `.extern .shared .align 128 .b8 ring[]`.
  // (gpu.dynamic_shared_memory becomes a static variable of one byte in LLVM 22.) 128: bits 4 .. 6 of an address are
  // then those that the swizzle changes.
  llvm.mlir.global external @ring() {addr_space = 3 : i32, alignment = 128 : i64} : !llvm.array<0 x i8>

  // .maxntid 256 and .minnctapersm 1: one block an SM, ptxas may take 65536 / 256 registers, that is all 255.
  gpu.func @gemm(%A_ptr: !llvm.ptr, %B_ptr: !llvm.ptr, %C_ptr: !llvm.ptr,
                 %M: i32, %N: i32, %K: i32, %lda: i32, %ldb: i32, %ldc: i32)
      kernel attributes {known_block_size = array<i32: 256, 1, 1>, nvvm.minctasm = 1 : i32} {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %c2 = arith.constant 2 : i32
    %c3 = arith.constant 3 : i32
    %c4 = arith.constant 4 : i32
    %c5 = arith.constant 5 : i32
    %c6 = arith.constant 6 : i32
    %c7 = arith.constant 7 : i32
    %c8 = arith.constant 8 : i32
    %c12 = arith.constant 12 : i32
    %c15 = arith.constant 15 : i32
    %c16 = arith.constant 16 : i32
    %c31 = arith.constant 31 : i32
    %c32 = arith.constant 32 : i32
    %c63 = arith.constant 63 : i32
    %c64 = arith.constant 64 : i32
    %c127 = arith.constant 127 : i32
    %c128 = arith.constant 128 : i32
    %c144 = arith.constant 144 : i32
    %c255 = arith.constant 255 : i32
    %c256 = arith.constant 256 : i32
    %B_tile = arith.constant 16384 : i32
    %stage_bytes = arith.constant 49152 : i32
    %last_stage = arith.constant 98304 : i32
    %true = arith.constant true
    %all_lanes = arith.constant -1 : i32
    %c512 = arith.constant 512 : i32
    %c1024 = arith.constant 1024 : i32
    %c2048 = arith.constant 2048 : i32
    %c4096 = arith.constant 4096 : i32
    %c8192 = arith.constant 8192 : i32
    %index_0 = arith.constant 0 : index
    %index_1 = arith.constant 1 : index
    %index_2 = arith.constant 2 : index
    %index_3 = arith.constant 3 : index
    %index_7 = arith.constant 7 : index
    %none = arith.constant 0.0 : f32
    %nothing = arith.constant 0.0 : !elt
    %i64_2 = arith.constant 2 : i64
    %i64_4 = arith.constant 4 : i64
    %i64_32 = arith.constant 32 : i64

    // Two sets of fragments, and the sums: indexed by constants after unrolling, and so in registers.
    %a_set = memref.alloca() : !a_registers
    %b_set = memref.alloca() : !b_registers
    %sums = memref.alloca() : !sum_registers

    // Which tile: block b takes tile b of an order that goes down 8 rows of tiles, column by column, then on to the
    // next 8. Blocks that run at once then share rows of A and of B, which are in L2 when the second one asks.
    %thread_index = gpu.thread_id x
    %block_index = gpu.block_id x
    %thread = arith.index_cast %thread_index : index to i32
    %block = arith.index_cast %block_index : index to i32
    %lane = arith.andi %thread, %c31 : i32
    %warp = arith.shrui %thread, %c5 : i32
    %M_up = arith.addi %M, %c127 : i32
    %N_up = arith.addi %N, %c255 : i32
    %tiles_m = arith.shrui %M_up, %c7 : i32             // ceil(M / 128)
    %tiles_n = arith.shrui %N_up, %c8 : i32             // ceil(N / 256)
    %height = arith.minsi %tiles_m, %c8 : i32
    %tiles_a_strip = arith.muli %height, %tiles_n : i32
    %strip = arith.divui %block, %tiles_a_strip : i32
    %place = arith.remui %block, %tiles_a_strip : i32
    %first_tile_m = arith.muli %strip, %height : i32
    %rows_left = arith.subi %tiles_m, %first_tile_m : i32
    %rows = arith.minsi %rows_left, %height : i32       // the last strip may be lower
    %tile_n = arith.divui %place, %rows : i32
    %tile_in_strip = arith.remui %place, %rows : i32
    %tile_m = arith.addi %first_tile_m, %tile_in_strip : i32
    %m_block = arith.muli %tile_m, %c128 : i32
    %n_block = arith.muli %tile_n, %c256 : i32

    // Where this thread's copies go. Rows 32 apart have the same r % 8, so that all go to one address plus constants.
    // Shared addresses are 32 bits wide: as integers they take one register, where an index takes two.
    %ring = llvm.mlir.addressof @ring : !shared
    %base = llvm.ptrtoint %ring : !shared to i32
    %row = arith.shrui %thread, %c3 : i32
    %chunk = arith.andi %thread, %c7 : i32
    %row_xor_chunk = arith.xori %row, %chunk : i32
    %chunk_place = arith.andi %row_xor_chunk, %c7 : i32
    %chunk_offset = arith.shli %chunk_place, %c4 : i32
    %row_offset = arith.muli %row, %c128 : i32
    %row_base = arith.addi %base, %row_offset : i32
    %store = arith.addi %row_base, %chunk_offset : i32  // A[row][chunk], stage 0

    // What it names to ldmatrix, in stage 0 and at step 0. At step s the chunk is 2 s + 0 or 1: a row's place
    // (2 s + h) ^ (r % 8) is that of step 0 with 2 s xored, so an address of step s is one of step 0, xor 32 s.
    %warp_m = arith.shrui %warp, %c2 : i32
    %warp_n = arith.andi %warp, %c3 : i32
    %m_in_tile = arith.muli %warp_m, %c64 : i32
    %n_in_tile = arith.muli %warp_n, %c64 : i32
    %line = arith.andi %lane, %c7 : i32                 // of an 8 x 8 matrix
    %lane_8 = arith.shrui %lane, %c3 : i32
    %odd_matrix = arith.andi %lane_8, %c1 : i32
    %late_matrix = arith.shrui %lane, %c4 : i32
    %odd_rows = arith.muli %odd_matrix, %c8 : i32       // A: rows 0 .. 7, 8 .. 15, then the same at the next 8 k
    %a_row0 = arith.addi %m_in_tile, %line : i32
    %a_row = arith.addi %a_row0, %odd_rows : i32
    %a_row_offset = arith.muli %a_row, %c128 : i32
    %a_place = arith.xori %late_matrix, %line : i32
    %a_chunk_offset = arith.muli %a_place, %c16 : i32
    %a_address = arith.addi %base, %a_row_offset : i32
    %read_A_first = arith.addi %a_address, %a_chunk_offset : i32
    %late_rows = arith.muli %late_matrix, %c8 : i32     // B: both 8 k of columns 0 .. 7, then those of 8 .. 15
    %b_row0 = arith.addi %n_in_tile, %line : i32
    %b_row = arith.addi %b_row0, %late_rows : i32
    %b_row_offset = arith.muli %b_row, %c128 : i32
    %b_place = arith.xori %odd_matrix, %line : i32
    %b_chunk_offset = arith.muli %b_place, %c16 : i32
    %b_tile = arith.addi %base, %B_tile : i32
    %b_address = arith.addi %b_tile, %b_row_offset : i32
    %read_B_first = arith.addi %b_address, %b_chunk_offset : i32

    // Global addresses, and how far their rows are from the end of A and of B. A thread outside the matrix computes
    // them too, and reads nothing there.
    %row_A = arith.addi %m_block, %row : i32
    %row_B = arith.addi %n_block, %row : i32
    %a_left = arith.subi %M, %row_A : i32
    %b_left = arith.subi %N, %row_B : i32
    %A = llvm.addrspacecast %A_ptr : !llvm.ptr to !global               // cvta.to.global.u64
    %B = llvm.addrspacecast %B_ptr : !llvm.ptr to !global
    %C = llvm.addrspacecast %C_ptr : !llvm.ptr to !global
    %k_chunk = arith.muli %chunk, %c8 : i32
    %k_chunk_64 = arith.extui %k_chunk : i32 to i64
    %lda_64 = arith.extsi %lda : i32 to i64
    %ldb_64 = arith.extsi %ldb : i32 to i64
    %row_A_64 = arith.extsi %row_A : i32 to i64
    %row_B_64 = arith.extsi %row_B : i32 to i64
    %a_row_start = arith.muli %row_A_64, %lda_64 : i64                  // mul.wide.s32: both come from 32 bits
    %b_row_start = arith.muli %row_B_64, %ldb_64 : i64
    %a_element = arith.addi %a_row_start, %k_chunk_64 : i64
    %b_element = arith.addi %b_row_start, %k_chunk_64 : i64
    %a_first = llvm.getelementptr %A[%a_element] : (!global, i64) -> !global, !elt
    %b_first = llvm.getelementptr %B[%b_element] : (!global, i64) -> !global, !elt
    %a_32 = arith.muli %lda_64, %i64_32 : i64
    %b_32 = arith.muli %ldb_64, %i64_32 : i64
    %a_rows = arith.muli %a_32, %i64_2 : i64                            // bytes to the row of the next copy
    %b_rows = arith.muli %b_32, %i64_2 : i64

    // Whether some row begins at an address that is no multiple of 16.
    %A_int = llvm.ptrtoint %A : !global to i32
    %B_int = llvm.ptrtoint %B : !global to i32
    %leading = arith.ori %lda, %ldb : i32
    %leading_bytes = arith.muli %leading, %c2 : i32
    %bases = arith.ori %A_int, %B_int : i32
    %addresses = arith.ori %bases, %leading_bytes : i32
    %odd = arith.andi %addresses, %c15 : i32
    %aligned = arith.cmpi eq, %odd, %c0 : i32
    %K_up = arith.addi %K, %c63 : i32
    %blocks = arith.shrui %K_up, %c6 : i32              // ceil(K / 64)

    affine.for %i = 0 to 4 {
      affine.for %j = 0 to 8 {
        affine.for %e = 0 to 4 {
          memref.store %none, %sums[%i, %j, %e] : !sum_registers
        }
      }
    }

    scf.if %aligned {
      // Stages 0 and 1. The last k-block goes first: it is the only one that may be short, and here, outside the loop,
      // a copy may ask for any number of bytes. All later ones are whole, and a copy reads 16 bytes or none: for a
      // number known only at run time ptxas adds instructions to every copy; a choice of 16 and 0 becomes a predicate.
      %last = arith.subi %blocks, %c1 : i32
      %last_k = arith.muli %last, %c64 : i32
      affine.for %stage = 0 to 2 {
        %stage_32 = arith.index_cast %stage : index to i32
        %is_first = arith.cmpi eq, %stage_32, %c0 : i32
        %k = arith.select %is_first, %last_k, %c0 : i32
        %there = arith.cmpi sgt, %blocks, %stage_32 : i32               // there may be one block only
        %k_to_end = arith.subi %K, %k : i32
        %k_left = arith.subi %k_to_end, %k_chunk : i32
        %k_some = arith.maxsi %k_left, %c0 : i32
        %k_count = arith.minsi %k_some, %c8 : i32
        %k_bytes_there = arith.muli %k_count, %c2 : i32
        %k_bytes = arith.select %there, %k_bytes_there, %c0 : i32
        %to_stage = arith.muli %stage_32, %stage_bytes : i32
        %to = arith.addi %store, %to_stage : i32
        %to_ptr = llvm.inttoptr %to : i32 to !shared
        %a_from = llvm.getelementptr %a_first[%k] : (!global, i32) -> !global, !elt
        %b_from = llvm.getelementptr %b_first[%k] : (!global, i32) -> !global, !elt
        affine.for %p = 0 to 4 iter_args(%from = %a_from) -> (!global) {
          %p_32 = arith.index_cast %p : index to i32
          %rows_before = arith.muli %p_32, %c32 : i32
          %row_bytes = arith.muli %rows_before, %c128 : i32
          %inside = arith.cmpi sgt, %a_left, %rows_before : i32
          %bytes = arith.select %inside, %k_bytes, %c0 : i32
          %to_row = llvm.getelementptr %to_ptr[%row_bytes] : (!shared, i32) -> !shared, i8
          // cp.async.cg.shared.global [to], [from], 16, bytes: what is not read is written as zeros.
          nvvm.cp.async.shared.global %to_row, %from, 16, cache = cg, %bytes : !shared, !global, i32
          %next = llvm.getelementptr %from[%a_rows] : (!global, i64) -> !global, i8
          affine.yield %next : !global
        }
        affine.for %p = 0 to 8 iter_args(%from = %b_from) -> (!global) {
          %p_32 = arith.index_cast %p : index to i32
          %rows_before = arith.muli %p_32, %c32 : i32
          %row_bytes_0 = arith.muli %rows_before, %c128 : i32
          %row_bytes = arith.addi %row_bytes_0, %B_tile : i32
          %inside = arith.cmpi sgt, %b_left, %rows_before : i32
          %bytes = arith.select %inside, %k_bytes, %c0 : i32
          %to_row = llvm.getelementptr %to_ptr[%row_bytes] : (!shared, i32) -> !shared, i8
          nvvm.cp.async.shared.global %to_row, %from, 16, cache = cg, %bytes : !shared, !global, i32
          %next = llvm.getelementptr %from[%b_rows] : (!global, i64) -> !global, i8
          affine.yield %next : !global
        }
        nvvm.cp.async.commit.group
      }

      // This thread's copies to stage 0 are there: at most one group, the later one, is still on its way. The barrier
      // says the same of everyone's.
      nvvm.cp.async.wait.group 1
      gpu.barrier                                                       // bar.sync 0
      // ldmatrix.sync.aligned.m8n8.x4.shared.b16: four 8 x 8 matrices, their rows named by 8 lanes each.
      // ldmatrix.sync.aligned.m8n8.x4.shared.b16: four 8 x 8 matrices, their rows named by 8 lanes each.
      // The fragments of step 0, into set 0.
      %first_A_ptr = llvm.inttoptr %read_A_first : i32 to !shared
      %first_B_ptr = llvm.inttoptr %read_B_first : i32 to !shared
      affine.for %i = 0 to 4 {
        %i_32 = arith.index_cast %i : index to i32
        %row_bytes = arith.muli %i_32, %c2048 : i32         // 16 rows
        %from_A = llvm.getelementptr %first_A_ptr[%row_bytes] : (!shared, i32) -> !shared, i8
        %from_B = llvm.getelementptr %first_B_ptr[%row_bytes] : (!shared, i32) -> !shared, i8
        %a = nvvm.ldmatrix %from_A {num = 4 : i32, layout = #nvvm.mma_layout<row>, shape = #matrix, eltType = #bits}
            : (!shared) -> !four
        %b = nvvm.ldmatrix %from_B {num = 4 : i32, layout = #nvvm.mma_layout<row>, shape = #matrix, eltType = #bits}
            : (!shared) -> !four
        %a0_bits = llvm.extractvalue %a[0] : !four
        %a1_bits = llvm.extractvalue %a[1] : !four
        %a2_bits = llvm.extractvalue %a[2] : !four
        %a3_bits = llvm.extractvalue %a[3] : !four
        %a0 = llvm.bitcast %a0_bits : i32 to !pair
        %a1 = llvm.bitcast %a1_bits : i32 to !pair
        %a2 = llvm.bitcast %a2_bits : i32 to !pair
        %a3 = llvm.bitcast %a3_bits : i32 to !pair
        %b0_bits = llvm.extractvalue %b[0] : !four
        %b1_bits = llvm.extractvalue %b[1] : !four
        %b2_bits = llvm.extractvalue %b[2] : !four
        %b3_bits = llvm.extractvalue %b[3] : !four
        %b0 = llvm.bitcast %b0_bits : i32 to !pair
        %b1 = llvm.bitcast %b1_bits : i32 to !pair
        %b2 = llvm.bitcast %b2_bits : i32 to !pair
        %b3 = llvm.bitcast %b3_bits : i32 to !pair
        affine.store %a0, %a_set[0, %i, 0] : !a_registers
        affine.store %a1, %a_set[0, %i, 1] : !a_registers
        affine.store %a2, %a_set[0, %i, 2] : !a_registers
        affine.store %a3, %a_set[0, %i, 3] : !a_registers
        affine.store %b0, %b_set[0, 2 * %i, 0] : !b_registers
        affine.store %b1, %b_set[0, 2 * %i, 1] : !b_registers
        affine.store %b2, %b_set[0, 2 * %i + 1, 0] : !b_registers
        affine.store %b3, %b_set[0, 2 * %i + 1, 1] : !b_registers
      }

      %a_start = llvm.getelementptr %a_first[%c64] : (!global, i32) -> !global, !elt      // stage 1 took k = 0
      %b_start = llvm.getelementptr %b_first[%c64] : (!global, i32) -> !global, !elt
      %to_start = arith.addi %store, %last_stage : i32
      // Rows inside for the copies of the block two ahead: none if there is no such block. Carried from turn to turn,
      // and not computed anew, so that LLVM does not keep the answers of all comparisons with them.
      %is_third = arith.cmpi sgt, %blocks, %c2 : i32
      %a_start_left = arith.select %is_third, %a_left, %c0 : i32
      %b_start_left = arith.select %is_third, %b_left, %c0 : i32
      %end:6 = scf.for %turn = %c0 to %blocks step %c1
          iter_args(%a_block = %a_start, %b_block = %b_start, %stage = %c0, %to_stage = %to_start,
                    %a_inside = %a_start_left, %b_inside = %b_start_left)
          -> (!global, !global, i32, i32, i32, i32) : i32 {
        %after:3 = affine.for %step = 0 to 4
            iter_args(%b_copy = %b_block, %reading = %stage, %writing = %to_stage) -> (!global, i32, i32) {
          %step_32 = arith.index_cast %step : index to i32
          %is_first = arith.cmpi eq, %step_32, %c0 : i32
          %is_last = arith.cmpi eq, %step_32, %c3 : i32

          // At the last step the next one lies in the next stage. First the group is closed, so that it counts: then
          // only the block two ahead may still be on its way. The barrier: everyone's copies of the next block are
          // there, and everyone has loaded the last fragments of this one, so that its stage can be written.
          %read_stage, %write_stage = scf.if %is_last -> (i32, i32) {
            nvvm.cp.async.commit.group
            nvvm.cp.async.wait.group 1
            gpu.barrier
            %free = arith.addi %store, %reading : i32
            %wraps = arith.cmpi eq, %reading, %last_stage : i32
            %onward = arith.addi %reading, %stage_bytes : i32
            %next_stage = arith.select %wraps, %c0, %onward : i32
            scf.yield %next_stage, %free : i32, i32
          } else {
            scf.yield %reading, %writing : i32, i32
          }

          // The next step's fragments, into the other set.
          %next_step_0 = arith.addi %step_32, %c1 : i32
          %next_step = arith.andi %next_step_0, %c3 : i32
          %swizzle = arith.muli %next_step, %c32 : i32
          %read_A = arith.addi %read_A_first, %read_stage : i32
          %read_B = arith.addi %read_B_first, %read_stage : i32
          %at_A = arith.xori %read_A, %swizzle : i32
          %at_B = arith.xori %read_B, %swizzle : i32
          %read_A_ptr = llvm.inttoptr %at_A : i32 to !shared
          %read_B_ptr = llvm.inttoptr %at_B : i32 to !shared
          affine.for %i = 0 to 4 {
            %i_32 = arith.index_cast %i : index to i32
            %row_bytes = arith.muli %i_32, %c2048 : i32         // 16 rows
            %from_A = llvm.getelementptr %read_A_ptr[%row_bytes] : (!shared, i32) -> !shared, i8
            %from_B = llvm.getelementptr %read_B_ptr[%row_bytes] : (!shared, i32) -> !shared, i8
            %a = nvvm.ldmatrix %from_A {num = 4 : i32, layout = #nvvm.mma_layout<row>, shape = #matrix, eltType = #bits}
                : (!shared) -> !four
            %b = nvvm.ldmatrix %from_B {num = 4 : i32, layout = #nvvm.mma_layout<row>, shape = #matrix, eltType = #bits}
                : (!shared) -> !four
            %a0_bits = llvm.extractvalue %a[0] : !four
            %a1_bits = llvm.extractvalue %a[1] : !four
            %a2_bits = llvm.extractvalue %a[2] : !four
            %a3_bits = llvm.extractvalue %a[3] : !four
            %a0 = llvm.bitcast %a0_bits : i32 to !pair
            %a1 = llvm.bitcast %a1_bits : i32 to !pair
            %a2 = llvm.bitcast %a2_bits : i32 to !pair
            %a3 = llvm.bitcast %a3_bits : i32 to !pair
            %b0_bits = llvm.extractvalue %b[0] : !four
            %b1_bits = llvm.extractvalue %b[1] : !four
            %b2_bits = llvm.extractvalue %b[2] : !four
            %b3_bits = llvm.extractvalue %b[3] : !four
            %b0 = llvm.bitcast %b0_bits : i32 to !pair
            %b1 = llvm.bitcast %b1_bits : i32 to !pair
            %b2 = llvm.bitcast %b2_bits : i32 to !pair
            %b3 = llvm.bitcast %b3_bits : i32 to !pair
            affine.store %a0, %a_set[(%step + 1) mod 2, %i, 0] : !a_registers
            affine.store %a1, %a_set[(%step + 1) mod 2, %i, 1] : !a_registers
            affine.store %a2, %a_set[(%step + 1) mod 2, %i, 2] : !a_registers
            affine.store %a3, %a_set[(%step + 1) mod 2, %i, 3] : !a_registers
            affine.store %b0, %b_set[(%step + 1) mod 2, 2 * %i, 0] : !b_registers
            affine.store %b1, %b_set[(%step + 1) mod 2, 2 * %i, 1] : !b_registers
            affine.store %b2, %b_set[(%step + 1) mod 2, 2 * %i + 1, 0] : !b_registers
            affine.store %b3, %b_set[(%step + 1) mod 2, 2 * %i + 1, 1] : !b_registers
          }

          // Four copies: step 0 A's, steps 1 and 2 B's.
          %to_ptr = llvm.inttoptr %write_stage : i32 to !shared
          scf.if %is_first {
            affine.for %p = 0 to 4 iter_args(%from = %a_block) -> (!global) {
              %p_32 = arith.index_cast %p : index to i32
              %rows_before = arith.muli %p_32, %c32 : i32
              %row_bytes = arith.muli %p_32, %c4096 : i32
              %inside = arith.cmpi sgt, %a_inside, %rows_before : i32
              %bytes = arith.select %inside, %c16, %c0 : i32
              %to = llvm.getelementptr %to_ptr[%row_bytes] : (!shared, i32) -> !shared, i8
              nvvm.cp.async.shared.global %to, %from, 16, cache = cg, %bytes : !shared, !global, i32
              %next = llvm.getelementptr %from[%a_rows] : (!global, i64) -> !global, i8
              affine.yield %next : !global
            }
          }
          %is_middle = arith.xori %is_first, %true : i1
          %not_last = arith.xori %is_last, %true : i1
          %copies_B = arith.andi %is_middle, %not_last : i1
          %b_after = scf.if %copies_B -> (!global) {
            %past = affine.for %p = 0 to 4 iter_args(%from = %b_copy) -> (!global) {
              %p_32 = arith.index_cast %p : index to i32
              %steps_before = arith.subi %step_32, %c1 : i32
              %copies_before = arith.muli %steps_before, %c4 : i32
              %pass = arith.addi %copies_before, %p_32 : i32
              %rows_before = arith.muli %pass, %c32 : i32
              %row_bytes_of_B = arith.muli %pass, %c4096 : i32
              %row_bytes = arith.addi %row_bytes_of_B, %B_tile : i32
              %inside = arith.cmpi sgt, %b_inside, %rows_before : i32
              %bytes = arith.select %inside, %c16, %c0 : i32
              %to = llvm.getelementptr %to_ptr[%row_bytes] : (!shared, i32) -> !shared, i8
              nvvm.cp.async.shared.global %to, %from, 16, cache = cg, %bytes : !shared, !global, i32
              %next = llvm.getelementptr %from[%b_rows] : (!global, i64) -> !global, i8
              affine.yield %next : !global
            }
            scf.yield %past : !global
          } else {
            scf.yield %b_copy : !global
          }

          // 32 mma.sync.aligned.m16n8k16.row.col.f32: fragment row by fragment row, and along the columns back and
          // forth: where the row changes, B stays.
          %set = arith.remui %step, %index_2 : index
          affine.for %i = 0 to 4 {
            affine.for %turn_of_8 = 0 to 8 {
              %odd_i = arith.remui %i, %index_2 : index
              %back = arith.cmpi ne, %odd_i, %index_0 : index
              %from_end = arith.subi %index_7, %turn_of_8 : index
              %j = arith.select %back, %from_end, %turn_of_8 : index
              %a0 = memref.load %a_set[%set, %i, %index_0] : !a_registers
              %a1 = memref.load %a_set[%set, %i, %index_1] : !a_registers
              %a2 = memref.load %a_set[%set, %i, %index_2] : !a_registers
              %a3 = memref.load %a_set[%set, %i, %index_3] : !a_registers
              %b0 = memref.load %b_set[%set, %j, %index_0] : !b_registers
              %b1 = memref.load %b_set[%set, %j, %index_1] : !b_registers
              %s0 = memref.load %sums[%i, %j, %index_0] : !sum_registers
              %s1 = memref.load %sums[%i, %j, %index_1] : !sum_registers
              %s2 = memref.load %sums[%i, %j, %index_2] : !sum_registers
              %s3 = memref.load %sums[%i, %j, %index_3] : !sum_registers
              %d = nvvm.mma.sync A[%a0, %a1, %a2, %a3] B[%b0, %b1] C[%s0, %s1, %s2, %s3]
                  {shape = #product, layoutA = #nvvm.mma_layout<row>, layoutB = #nvvm.mma_layout<col>,
                   multiplicandAPtxType = #elt, multiplicandBPtxType = #elt} : (!pair, !pair, f32) -> !sum
              %d0 = llvm.extractvalue %d[0] : !sum
              %d1 = llvm.extractvalue %d[1] : !sum
              %d2 = llvm.extractvalue %d[2] : !sum
              %d3 = llvm.extractvalue %d[3] : !sum
              memref.store %d0, %sums[%i, %j, %index_0] : !sum_registers
              memref.store %d1, %sums[%i, %j, %index_1] : !sum_registers
              memref.store %d2, %sums[%i, %j, %index_2] : !sum_registers
              memref.store %d3, %sums[%i, %j, %index_3] : !sum_registers
            }
          }
          affine.yield %b_after, %read_stage, %write_stage : !global, i32, i32
        }
        %blocks_left = arith.subi %blocks, %turn : i32
        %more = arith.cmpi sgt, %blocks_left, %c3 : i32
        %a_inside_next = arith.select %more, %a_inside, %c0 : i32
        %b_inside_next = arith.select %more, %b_inside, %c0 : i32
        %a_next = llvm.getelementptr %a_block[%c64] : (!global, i32) -> !global, !elt
        %b_next = llvm.getelementptr %b_block[%c64] : (!global, i32) -> !global, !elt
        scf.yield %a_next, %b_next, %after#1, %after#2, %a_inside_next, %b_inside_next
            : !global, !global, i32, i32, i32, i32
      }
      nvvm.cp.async.wait.group 0                // what is still on its way is zeros, but it would overwrite C's tile
    } else {
      // Rows that are not aligned to 16 bytes, or a base: the same tile in stage 0 alone, element by element. Nothing
      // overlaps here but what the other warps do.
      scf.for %turn = %c0 to %blocks step %c1 : i32 {
        %k = arith.muli %turn, %c64 : i32
        %k_to_end = arith.subi %K, %k : i32
        %k_left = arith.subi %k_to_end, %k_chunk : i32
        %k_64 = arith.extui %k : i32 to i64
        gpu.barrier                                                     // everyone has read the block before
        scf.for %p = %c0 to %c12 step %c1 : i32 {                       // 4 chunks of A, then 8 of B
          %of_A = arith.cmpi slt, %p, %c4 : i32
          %p_of_B = arith.subi %p, %c4 : i32
          %pass = arith.select %of_A, %p, %p_of_B : i32
          %left = arith.select %of_A, %a_left, %b_left : i32
          %rows_of = arith.select %of_A, %a_rows, %b_rows : i64
          %first = arith.select %of_A, %a_first, %b_first : !global
          %rows_before = arith.muli %pass, %c32 : i32
          %in_rows = arith.cmpi sgt, %left, %rows_before : i32
          %count = arith.select %in_rows, %k_left, %c0 : i32
          %pass_64 = arith.extui %pass : i32 to i64
          %distance = arith.muli %pass_64, %rows_of : i64
          %row_start = llvm.getelementptr %first[%distance] : (!global, i64) -> !global, i8
          %from = llvm.getelementptr %row_start[%k_64] : (!global, i64) -> !global, !elt
          %row_bytes = arith.muli %p, %c4096 : i32
          %to = arith.addi %store, %row_bytes : i32
          %to_ptr = llvm.inttoptr %to : i32 to !shared
          scf.for %e = %c0 to %c8 step %c1 : i32 {
            %inside = arith.cmpi slt, %e, %count : i32
            %element = scf.if %inside -> (!elt) {
              %at = llvm.getelementptr %from[%e] : (!global, i32) -> !global, !elt
              %loaded = llvm.load %at : !global -> !elt
              scf.yield %loaded : !elt
            } else {
              scf.yield %nothing : !elt
            }
            %to_element = llvm.getelementptr %to_ptr[%e] : (!shared, i32) -> !shared, !elt
            llvm.store %element, %to_element : !elt, !shared
          }
        }
        gpu.barrier                                                     // the whole block is there
        scf.for %step = %c0 to %c4 step %c1 : i32 {
          %swizzle = arith.muli %step, %c32 : i32
          %at_A = arith.xori %read_A_first, %swizzle : i32
          %at_B = arith.xori %read_B_first, %swizzle : i32
          %read_A_ptr = llvm.inttoptr %at_A : i32 to !shared
          %read_B_ptr = llvm.inttoptr %at_B : i32 to !shared
          affine.for %i = 0 to 4 {
            %i_32 = arith.index_cast %i : index to i32
            %row_bytes = arith.muli %i_32, %c2048 : i32         // 16 rows
            %from_A = llvm.getelementptr %read_A_ptr[%row_bytes] : (!shared, i32) -> !shared, i8
            %from_B = llvm.getelementptr %read_B_ptr[%row_bytes] : (!shared, i32) -> !shared, i8
            %a = nvvm.ldmatrix %from_A {num = 4 : i32, layout = #nvvm.mma_layout<row>, shape = #matrix, eltType = #bits}
                : (!shared) -> !four
            %b = nvvm.ldmatrix %from_B {num = 4 : i32, layout = #nvvm.mma_layout<row>, shape = #matrix, eltType = #bits}
                : (!shared) -> !four
            %a0_bits = llvm.extractvalue %a[0] : !four
            %a1_bits = llvm.extractvalue %a[1] : !four
            %a2_bits = llvm.extractvalue %a[2] : !four
            %a3_bits = llvm.extractvalue %a[3] : !four
            %a0 = llvm.bitcast %a0_bits : i32 to !pair
            %a1 = llvm.bitcast %a1_bits : i32 to !pair
            %a2 = llvm.bitcast %a2_bits : i32 to !pair
            %a3 = llvm.bitcast %a3_bits : i32 to !pair
            %b0_bits = llvm.extractvalue %b[0] : !four
            %b1_bits = llvm.extractvalue %b[1] : !four
            %b2_bits = llvm.extractvalue %b[2] : !four
            %b3_bits = llvm.extractvalue %b[3] : !four
            %b0 = llvm.bitcast %b0_bits : i32 to !pair
            %b1 = llvm.bitcast %b1_bits : i32 to !pair
            %b2 = llvm.bitcast %b2_bits : i32 to !pair
            %b3 = llvm.bitcast %b3_bits : i32 to !pair
            affine.store %a0, %a_set[0, %i, 0] : !a_registers
            affine.store %a1, %a_set[0, %i, 1] : !a_registers
            affine.store %a2, %a_set[0, %i, 2] : !a_registers
            affine.store %a3, %a_set[0, %i, 3] : !a_registers
            affine.store %b0, %b_set[0, 2 * %i, 0] : !b_registers
            affine.store %b1, %b_set[0, 2 * %i, 1] : !b_registers
            affine.store %b2, %b_set[0, 2 * %i + 1, 0] : !b_registers
            affine.store %b3, %b_set[0, 2 * %i + 1, 1] : !b_registers
          }
          affine.for %i = 0 to 4 {
            affine.for %turn_of_8 = 0 to 8 {
              %odd_i = arith.remui %i, %index_2 : index
              %back = arith.cmpi ne, %odd_i, %index_0 : index
              %from_end = arith.subi %index_7, %turn_of_8 : index
              %j = arith.select %back, %from_end, %turn_of_8 : index
              %a0 = memref.load %a_set[%index_0, %i, %index_0] : !a_registers
              %a1 = memref.load %a_set[%index_0, %i, %index_1] : !a_registers
              %a2 = memref.load %a_set[%index_0, %i, %index_2] : !a_registers
              %a3 = memref.load %a_set[%index_0, %i, %index_3] : !a_registers
              %b0 = memref.load %b_set[%index_0, %j, %index_0] : !b_registers
              %b1 = memref.load %b_set[%index_0, %j, %index_1] : !b_registers
              %s0 = memref.load %sums[%i, %j, %index_0] : !sum_registers
              %s1 = memref.load %sums[%i, %j, %index_1] : !sum_registers
              %s2 = memref.load %sums[%i, %j, %index_2] : !sum_registers
              %s3 = memref.load %sums[%i, %j, %index_3] : !sum_registers
              %d = nvvm.mma.sync A[%a0, %a1, %a2, %a3] B[%b0, %b1] C[%s0, %s1, %s2, %s3]
                  {shape = #product, layoutA = #nvvm.mma_layout<row>, layoutB = #nvvm.mma_layout<col>,
                   multiplicandAPtxType = #elt, multiplicandBPtxType = #elt} : (!pair, !pair, f32) -> !sum
              %d0 = llvm.extractvalue %d[0] : !sum
              %d1 = llvm.extractvalue %d[1] : !sum
              %d2 = llvm.extractvalue %d[2] : !sum
              %d3 = llvm.extractvalue %d[3] : !sum
              memref.store %d0, %sums[%i, %j, %index_0] : !sum_registers
              memref.store %d1, %sums[%i, %j, %index_1] : !sum_registers
              memref.store %d2, %sums[%i, %j, %index_2] : !sum_registers
              memref.store %d3, %sums[%i, %j, %index_3] : !sum_registers
            }
          }
        }
      }
    }

    // A lane holds two neighbouring sums of a row: 4 bytes, and 8 rows an instruction would be written in pieces of 16
    // bytes. So each warp lays its 64 x 64 down in 8192 bytes of its own, 128 a row and swizzled like A and B, and
    // reads whole chunks back. The barrier: everyone is done with the ring, which now takes C's tile.
    gpu.barrier
    %room_offset = arith.muli %warp, %c8192 : i32
    %room = arith.addi %base, %room_offset : i32
    %r = arith.shrui %lane, %c2 : i32
    %w = arith.andi %lane, %c3 : i32
    %r_bytes = arith.muli %r, %c144 : i32               // 128 r + 16 r: chunk 0 of row r is at place r
    %w_bytes = arith.muli %w, %c4 : i32
    %row_r = arith.addi %room, %r_bytes : i32
    %lane_C = arith.addi %row_r, %w_bytes : i32
    affine.for %j = 0 to 8 {
      %j_32 = arith.index_cast %j : index to i32
      %j_place = arith.muli %j_32, %c16 : i32
      %at = arith.xori %lane_C, %j_place : i32
      %at_ptr = llvm.inttoptr %at : i32 to !shared
      affine.for %i = 0 to 4 {
        affine.for %half = 0 to 2 {
          %low = affine.load %sums[%i, %j, 2 * %half] : !sum_registers
          %high = affine.load %sums[%i, %j, 2 * %half + 1] : !sum_registers
          %two = vector.from_elements %low, %high : vector<2xf32>
          %rounded = arith.truncf %two : vector<2xf32> to vector<2x!elt>        // cvt.rn.f16x2.f32, or bf16x2
          %i_32 = arith.index_cast %i : index to i32
          %half_32 = arith.index_cast %half : index to i32
          %i_bytes = arith.muli %i_32, %c2048 : i32
          %half_bytes = arith.muli %half_32, %c1024 : i32
          %row_bytes = arith.addi %i_bytes, %half_bytes : i32
          %to = llvm.getelementptr %at_ptr[%row_bytes] : (!shared, i32) -> !shared, i8
          llvm.store %rounded, %to {alignment = 4 : i64} : vector<2x!elt>, !shared      // st.shared.b32
        }
      }
    }
    // All lanes of the warp have written: nobody else does.
    nvvm.bar.warp.sync %all_lanes : i32

    // Lane l stores chunk l % 8 of rows l / 8 + 4 i.
    %row_C = arith.shrui %lane, %c3 : i32
    %chunk_xor_row = arith.xori %chunk, %row_C : i32
    %place_bytes = arith.muli %chunk_xor_row, %c16 : i32
    %row_C_bytes = arith.muli %row_C, %c128 : i32
    %row_C_start = arith.addi %room, %row_C_bytes : i32
    %read_C = arith.addi %row_C_start, %place_bytes : i32
    %m_warp = arith.addi %m_block, %m_in_tile : i32
    %m = arith.addi %m_warp, %row_C : i32
    %n_warp = arith.addi %n_block, %n_in_tile : i32
    %n = arith.addi %n_warp, %k_chunk : i32             // 8 times the chunk, as along k
    %m_left = arith.subi %M, %m : i32
    %n_left = arith.subi %N, %n : i32
    %ldc_64 = arith.extsi %ldc : i32 to i64
    %m_64 = arith.extsi %m : i32 to i64
    %n_64 = arith.extsi %n : i32 to i64
    %c_row_start = arith.muli %m_64, %ldc_64 : i64
    %c_element = arith.addi %c_row_start, %n_64 : i64
    %c_first = llvm.getelementptr %C[%c_element] : (!global, i64) -> !global, !elt
    %c_step = arith.muli %ldc_64, %i64_4 : i64          // elements to 4 rows on
    %C_int = llvm.ptrtoint %C : !global to i32
    %ldc_bytes = arith.muli %ldc, %c2 : i32
    %c_addresses = arith.ori %C_int, %ldc_bytes : i32
    %c_odd = arith.andi %c_addresses, %c15 : i32
    %c_aligned = arith.cmpi eq, %c_odd, %c0 : i32
    %c_fits = arith.cmpi sge, %n_left, %c8 : i32
    %wide = arith.andi %c_aligned, %c_fits : i1
    scf.if %wide {
      affine.for %i = 0 to 16 iter_args(%to = %c_first) -> (!global) {
        %i_32 = arith.index_cast %i : index to i32
        %rows_before = arith.muli %i_32, %c4 : i32
        %inside = arith.cmpi sgt, %m_left, %rows_before : i32
        scf.if %inside {
          %odd_i = arith.andi %i_32, %c1 : i32
          %flip = arith.muli %odd_i, %c64 : i32         // 4 rows on a chunk's place differs in bit 2, which is 64 bytes
          %i_bytes = arith.muli %i_32, %c512 : i32
          %at = arith.xori %read_C, %flip : i32
          %at_ptr = llvm.inttoptr %at : i32 to !shared
          %from = llvm.getelementptr %at_ptr[%i_bytes] : (!shared, i32) -> !shared, i8
          %eight = llvm.load %from {alignment = 16 : i64} : !shared -> vector<4xi32>    // ld.shared.v4.b32
          llvm.store %eight, %to {alignment = 16 : i64} : vector<4xi32>, !global        // st.global.v4.b32
        }
        %next = llvm.getelementptr %to[%c_step] : (!global, i64) -> !global, !elt
        affine.yield %next : !global
      }
    } else {
      %rows_max = arith.minsi %m_left, %c64 : i32
      %columns = arith.minsi %n_left, %c8 : i32
      scf.for %down = %c0 to %rows_max step %c4 : i32 {
        %down_flip = arith.andi %down, %c4 : i32
        %flip = arith.muli %down_flip, %c16 : i32
        %down_bytes = arith.muli %down, %c128 : i32
        %at_row = arith.xori %read_C, %flip : i32
        %at = arith.addi %at_row, %down_bytes : i32
        %from = llvm.inttoptr %at : i32 to !shared
        %down_64 = arith.extui %down : i32 to i64
        %distance = arith.muli %down_64, %ldc_64 : i64
        %to = llvm.getelementptr %c_first[%distance] : (!global, i64) -> !global, !elt
        scf.for %e = %c0 to %columns step %c1 : i32 {
          %from_element = llvm.getelementptr %from[%e] : (!shared, i32) -> !shared, !elt
          %element = llvm.load %from_element : !shared -> !elt
          %to_element = llvm.getelementptr %to[%e] : (!global, i32) -> !global, !elt
          llvm.store %element, %to_element : !elt, !global
        }
      }
    }
    gpu.return
  }
}
