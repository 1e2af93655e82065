// 13 multistage: C = A B on tensor cores, tiles on their way while one is multiplied. As cu/gemm/13_multistage.cu.
//
// Computes  C[m][n] = sum over k of A[m][k] B[n][k],  row-major, layout NT, any M, N, K; fp16, sums in fp32.
// Idea      12 waits for every tile before it multiplies it. Here cp.async fills a ring of three tiles: a block starts
//           the copies of k-block p + 2, then multiplies block p, which was asked for two blocks ago.
//
// Dialects  nvgpu.device_async_copy is cp.async on memrefs: `bypassL1` is .cg, and its last operand says how many
//           elements there are, the rest is zeros. nvvm.cp.async.commit.group and .wait.group count the copies.
//           Shared memory beyond 48 KB is dynamic: a memref.global of no elements, without an initial value, becomes an
//           external array whose size the launch names (gpu.dynamic_shared_memory: a static byte, in LLVM 22).
// Tile      128 x 128 x 64, 2 x 4 warps of 64 x 32. Blocks take tiles in groups of 8 rows, for L2.
// Threads   Thread t copies chunk t % 8 of rows t / 8 + 0, 32, 64, 96 of both tiles.
// Shared    98304 bytes, dynamic: As[3][128][64], then Bs[3][128][64]. Swizzled as in 12.
// Pipeline  Turns are counted from -2: the first two only copy. In turn p, behind the barrier, block p is whole, and
//           the stage of block p - 1 is free for block p + 2.
// Tails     cp.async writes zeros for what is outside. Where rows do not begin at multiples of 16 bytes they are copied
//           element by element, through registers; the barrier of two turns later makes them seen.
// Limit     Every step of 16 k waits for its own fragments, C is stored 4 bytes a lane, and a number of bytes known
//           only at run time costs instructions with every copy. 14 mends all three.

!matrix = memref<?x?x!elt, strided<[?, 1]>>
!a_fragment = vector<4x2x!elt>      // 16 x 16 of A, in 4 registers of 2
!b_fragment = vector<2x2x!elt>      // 16 x 8 of B
!sum = vector<2x2xf32>              // 16 x 8 of C
// LLVM would unroll the slow loops over elements, and compute every address before the main loop: both cost registers.
#rolled = #llvm.loop_annotation<unroll = <disable = true>>
#in_place = #llvm.loop_annotation<licm = <disable = true>>
!ring_a = memref<3x128x64x!elt, #gpu.address_space<workgroup>>
!ring_b = memref<3x128x64x!elt, #gpu.address_space<workgroup>>
!bytes = memref<?xi8, #gpu.address_space<workgroup>>

gpu.module @multistage {
  memref.global "public" @ring : memref<0xi8, #gpu.address_space<workgroup>> {alignment = 128 : i64}

  gpu.func @gemm(%A_ptr: memref<!elt>, %B_ptr: memref<!elt>, %C_ptr: memref<!elt>,
                 %M_32: i32, %N_32: i32, %K_32: i32, %lda_32: i32, %ldb_32: i32, %ldc_32: i32)
      kernel attributes {known_block_size = array<i32: 256, 1, 1>, nvvm.minctasm = 2 : i32} {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    %c3 = arith.constant 3 : index
    %c4 = arith.constant 4 : index
    %c8 = arith.constant 8 : index
    %c15 = arith.constant 15 : index
    %c16 = arith.constant 16 : index
    %c32 = arith.constant 32 : index
    %c63 = arith.constant 63 : index
    %c64 = arith.constant 64 : index
    %c128 = arith.constant 128 : index
    %i32_8 = arith.constant 8 : i32
    %i32_127 = arith.constant 127 : i32
    %i32_128 = arith.constant 128 : i32
    %before_first = arith.constant -2 : index
    %half_ring = arith.constant 49152 : index
    %ring_bytes = arith.constant 98304 : index
    %nothing = arith.constant 0.0 : !elt
    %no_sum = arith.constant dense<0.0> : !sum
    %no_b = arith.constant dense<0.0> : !b_fragment
    %M = arith.index_cast %M_32 : i32 to index
    %N = arith.index_cast %N_32 : i32 to index
    %K = arith.index_cast %K_32 : i32 to index
    %lda = arith.index_cast %lda_32 : i32 to index
    %ldb = arith.index_cast %ldb_32 : i32 to index
    %ldc = arith.index_cast %ldc_32 : i32 to index
    %A = memref.reinterpret_cast %A_ptr to offset: [0], sizes: [%M, %K], strides: [%lda, 1] : memref<!elt> to !matrix
    %B = memref.reinterpret_cast %B_ptr to offset: [0], sizes: [%N, %K], strides: [%ldb, 1] : memref<!elt> to !matrix
    %C = memref.reinterpret_cast %C_ptr to offset: [0], sizes: [%M, %N], strides: [%ldc, 1] : memref<!elt> to !matrix
    // Whether all rows of A and of B begin at multiples of 16 bytes, and all of C at multiples of 4.
    %A_int = memref.extract_aligned_pointer_as_index %A_ptr : memref<!elt> -> index
    %B_int = memref.extract_aligned_pointer_as_index %B_ptr : memref<!elt> -> index
    %C_int = memref.extract_aligned_pointer_as_index %C_ptr : memref<!elt> -> index
    %a_row_bytes = arith.muli %lda, %c2 : index
    %b_row_bytes = arith.muli %ldb, %c2 : index
    %c_row_bytes = arith.muli %ldc, %c2 : index
    %bases = arith.ori %A_int, %B_int : index
    %strides = arith.ori %a_row_bytes, %b_row_bytes : index
    %addresses = arith.ori %bases, %strides : index
    %beyond_16 = arith.andi %addresses, %c15 : index
    %aligned = arith.cmpi eq, %beyond_16, %c0 : index
    %c_addresses = arith.ori %C_int, %c_row_bytes : index
    %beyond_4 = arith.andi %c_addresses, %c3 : index
    %pairs = arith.cmpi eq, %beyond_4, %c0 : index

    %ring = memref.get_global @ring : memref<0xi8, #gpu.address_space<workgroup>>
    %room = memref.reinterpret_cast %ring to offset: [0], sizes: [%ring_bytes], strides: [1]
        : memref<0xi8, #gpu.address_space<workgroup>> to !bytes
    %As = memref.view %room[%c0][] : !bytes to !ring_a
    %Bs = memref.view %room[%half_ring][] : !bytes to !ring_b

    // Tile number `block` of an order that goes down 8 rows of tiles, column by column, then on to the next 8.
    %thread = gpu.thread_id x
    %block = gpu.block_id x
    // In 32 bits: a division of 64-bit numbers is a subroutine.
    %block_32 = arith.index_cast %block : index to i32
    %M_up = arith.addi %M_32, %i32_127 : i32
    %N_up = arith.addi %N_32, %i32_127 : i32
    %tiles_m = arith.divui %M_up, %i32_128 : i32
    %tiles_n = arith.divui %N_up, %i32_128 : i32
    %height = arith.minsi %tiles_m, %i32_8 : i32
    %tiles_a_strip = arith.muli %height, %tiles_n : i32
    %strip = arith.divui %block_32, %tiles_a_strip : i32
    %in_strip = arith.remui %block_32, %tiles_a_strip : i32
    %first_tile_m = arith.muli %strip, %height : i32
    %rows_left = arith.subi %tiles_m, %first_tile_m : i32
    %rows = arith.minsi %rows_left, %height : i32        // the last strip may be lower
    %tile_n_32 = arith.divui %in_strip, %rows : i32
    %tile_in_rows = arith.remui %in_strip, %rows : i32
    %tile_m_32 = arith.addi %first_tile_m, %tile_in_rows : i32
    %tile_m = arith.index_cast %tile_m_32 : i32 to index
    %tile_n = arith.index_cast %tile_n_32 : i32 to index
    %K_up = arith.addi %K, %c63 : index
    %blocks = arith.divui %K_up, %c64 : index
    %m_block = arith.muli %tile_m, %c128 : index
    %n_block = arith.muli %tile_n, %c128 : index
    %row = arith.divui %thread, %c8 : index
    %chunk = arith.remui %thread, %c8 : index
    %a_row_first = arith.addi %m_block, %row : index
    %b_row_first = arith.addi %n_block, %row : index
    %row_bits = arith.remui %row, %c8 : index
    %swizzled = arith.xori %chunk, %row_bits : index
    %place = arith.muli %swizzled, %c8 : index
    %k_chunk = arith.muli %chunk, %c8 : index
    // What a lane names to ldmatrix. A: rows 0 .. 7, 8 .. 15 of 8 k, then the same of the next 8. B: both 8 k of
    // columns 0 .. 7, then those of 8 .. 15.
    %lane = arith.remui %thread, %c32 : index
    %warp = arith.divui %thread, %c32 : index
    %warp_along_m = arith.divui %warp, %c4 : index
    %warp_along_n = arith.remui %warp, %c4 : index
    %warp_m = arith.muli %warp_along_m, %c64 : index
    %warp_n = arith.muli %warp_along_n, %c32 : index
    %line = arith.remui %lane, %c8 : index
    %lane_8 = arith.divui %lane, %c8 : index
    %odd_matrix = arith.remui %lane_8, %c2 : index
    %late_matrix = arith.divui %lane, %c16 : index
    %odd_rows = arith.muli %odd_matrix, %c8 : index
    %late_rows = arith.muli %late_matrix, %c8 : index
    %a_line = arith.addi %warp_m, %line : index
    %b_line = arith.addi %warp_n, %line : index
    %a_lane_row = arith.addi %a_line, %odd_rows : index
    %b_lane_row = arith.addi %b_line, %late_rows : index

    // Memory space 5 is a thread's own. These stand in the first block and are indexed by constants once affine.for is
    // unrolled, so that LLVM makes registers of them; elsewhere they would be memory.
    %sums = memref.alloca() : memref<4x4x!sum, 5>
    %a_set = memref.alloca() : memref<4x!a_fragment, 5>
    %b_set = memref.alloca() : memref<4x!b_fragment, 5>
    affine.for %i = 0 to 4 {
      affine.for %j = 0 to 4 {
        memref.store %no_sum, %sums[%i, %j] : memref<4x4x!sum, 5>
      }
    }

    %last:2 = scf.for %turn = %before_first to %blocks step %c1 iter_args(%write = %c0, %read = %c1) -> (index, index) {
      %multiplies = arith.cmpi sge, %turn, %c0 : index
      scf.if %multiplies {
        // Block `turn` is there, of this thread's copies: only the group of the turn before may be on its way. The
        // barrier: of everyone's; and everyone is done with the block before, whose stage is written next.
        nvvm.cp.async.wait.group 1
        gpu.barrier
      }
      %ahead = arith.addi %turn, %c2 : index
      %more = arith.cmpi slt, %ahead, %blocks : index
      scf.if %more {
        %k_block = arith.muli %ahead, %c64 : index
        %k = arith.addi %k_block, %k_chunk : index
        %k_left = arith.subi %K, %k : index
        %k_some = arith.maxsi %k_left, %c0 : index
        %k_count = arith.minsi %k_some, %c8 : index
        scf.if %aligned {
          // cp.async.cg.shared.global [to], [from], 16, bytes
          affine.for %i = 0 to 4 {
            %row_of_32 = arith.muli %i, %c32 : index
            %r = arith.addi %a_row_first, %row_of_32 : index
            %to_row = arith.addi %row, %row_of_32 : index
            %inside = arith.cmpi slt, %r, %M : index
            %count = arith.select %inside, %k_count, %c0 : index
            %token = nvgpu.device_async_copy %A[%r, %k], %As[%write, %to_row, %place], 8, %count {bypassL1}
                : !matrix to !ring_a
          }
          affine.for %i = 0 to 4 {
            %row_of_32 = arith.muli %i, %c32 : index
            %r = arith.addi %b_row_first, %row_of_32 : index
            %to_row = arith.addi %row, %row_of_32 : index
            %inside = arith.cmpi slt, %r, %N : index
            %count = arith.select %inside, %k_count, %c0 : index
            %token = nvgpu.device_async_copy %B[%r, %k], %Bs[%write, %to_row, %place], 8, %count {bypassL1}
                : !matrix to !ring_b
          }
        } else {
          scf.for %row_of_32 = %c0 to %c128 step %c32 {
            %r = arith.addi %a_row_first, %row_of_32 : index
            %to_row = arith.addi %row, %row_of_32 : index
            %inside = arith.cmpi slt, %r, %M : index
            %count = arith.select %inside, %k_count, %c0 : index
            scf.for %e = %c0 to %c8 step %c1 {
              %k_e = arith.addi %k, %e : index
              %place_e = arith.addi %place, %e : index
              %there = arith.cmpi slt, %e, %count : index
              %element = scf.if %there -> (!elt) {
                %loaded = memref.load %A[%r, %k_e] : !matrix
                scf.yield %loaded : !elt
              } else {
                scf.yield %nothing : !elt
              }
              memref.store %element, %As[%write, %to_row, %place_e] : !ring_a
            } {loop_annotation = #rolled}
          } {loop_annotation = #rolled}
          scf.for %row_of_32 = %c0 to %c128 step %c32 {
            %r = arith.addi %b_row_first, %row_of_32 : index
            %to_row = arith.addi %row, %row_of_32 : index
            %inside = arith.cmpi slt, %r, %N : index
            %count = arith.select %inside, %k_count, %c0 : index
            scf.for %e = %c0 to %c8 step %c1 {
              %k_e = arith.addi %k, %e : index
              %place_e = arith.addi %place, %e : index
              %there = arith.cmpi slt, %e, %count : index
              %element = scf.if %there -> (!elt) {
                %loaded = memref.load %B[%r, %k_e] : !matrix
                scf.yield %loaded : !elt
              } else {
                scf.yield %nothing : !elt
              }
              memref.store %element, %Bs[%write, %to_row, %place_e] : !ring_b
            } {loop_annotation = #rolled}
          } {loop_annotation = #rolled}
        }
      }
      nvvm.cp.async.commit.group                         // behind the last block empty, so that the count stays right

      scf.if %multiplies {
        // Four steps of 16 k. Row r of a tile is 8 chunks of 8 elements, chunk c at place c ^ (r % 8).
        affine.for %step = 0 to 4 {
          %chunk_of_step = arith.muli %step, %c2 : index
          affine.for %i = 0 to 4 {
            %row_of_16 = arith.muli %i, %c16 : index
            %a_row = arith.addi %a_lane_row, %row_of_16 : index
            %a_chunk = arith.addi %chunk_of_step, %late_matrix : index
            %a_bits = arith.remui %a_row, %c8 : index
            %a_at = arith.xori %a_chunk, %a_bits : index
            %a_k = arith.muli %a_at, %c8 : index
            // ldmatrix.sync.aligned.m8n8.x4.shared.b16: four 8 x 8 matrices, two neighbours in a register of each
            %a = nvgpu.ldmatrix %As[%read, %a_row, %a_k] {numTiles = 4 : i32, transpose = false}
                : !ring_a -> !a_fragment
            memref.store %a, %a_set[%i] : memref<4x!a_fragment, 5>
          }
          affine.for %j = 0 to 2 {
            %row_of_16 = arith.muli %j, %c16 : index
            %b_row = arith.addi %b_lane_row, %row_of_16 : index
            %b_chunk = arith.addi %chunk_of_step, %odd_matrix : index
            %b_bits = arith.remui %b_row, %c8 : index
            %b_at = arith.xori %b_chunk, %b_bits : index
            %b_k = arith.muli %b_at, %c8 : index
            %two = nvgpu.ldmatrix %Bs[%read, %b_row, %b_k] {numTiles = 4 : i32, transpose = false}
                : !ring_b -> !a_fragment
            // Two fragments of 8 columns: registers 0 and 1, 2 and 3. Taking a vector apart costs no instruction.
            %r0 = vector.extract %two[0] : vector<2x!elt> from !a_fragment
            %r1 = vector.extract %two[1] : vector<2x!elt> from !a_fragment
            %r2 = vector.extract %two[2] : vector<2x!elt> from !a_fragment
            %r3 = vector.extract %two[3] : vector<2x!elt> from !a_fragment
            %left_0 = vector.insert %r0, %no_b [0] : vector<2x!elt> into !b_fragment
            %left = vector.insert %r1, %left_0 [1] : vector<2x!elt> into !b_fragment
            %right_0 = vector.insert %r2, %no_b [0] : vector<2x!elt> into !b_fragment
            %right = vector.insert %r3, %right_0 [1] : vector<2x!elt> into !b_fragment
            affine.store %left, %b_set[2 * %j] : memref<4x!b_fragment, 5>
            affine.store %right, %b_set[2 * %j + 1] : memref<4x!b_fragment, 5>
          }
          affine.for %i = 0 to 4 {
            affine.for %j = 0 to 4 {
              %a = memref.load %a_set[%i] : memref<4x!a_fragment, 5>
              %b = memref.load %b_set[%j] : memref<4x!b_fragment, 5>
              %before = memref.load %sums[%i, %j] : memref<4x4x!sum, 5>
              // mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32
              %after = nvgpu.mma.sync (%a, %b, %before) {mmaShape = [16, 8, 16]}
                  : (!a_fragment, !b_fragment, !sum) -> !sum
              memref.store %after, %sums[%i, %j] : memref<4x4x!sum, 5>
            }
          }
        }
      }
      %write_on = arith.addi %write, %c1 : index
      %write_wraps = arith.cmpi eq, %write_on, %c3 : index
      %write_next = arith.select %write_wraps, %c0, %write_on : index
      %read_on = arith.addi %read, %c1 : index
      %read_wraps = arith.cmpi eq, %read_on, %c3 : index
      %read_next = arith.select %read_wraps, %c0, %read_on : index
      scf.yield %write_next, %read_next : index, index
    } {loop_annotation = #in_place}

    // Lane l holds rows l / 4 and l / 4 + 8 and columns 2 (l % 4) and 2 (l % 4) + 1 of each 16 x 8 sums.
    %lane_row = arith.divui %lane, %c4 : index
    %lane_pair = arith.remui %lane, %c4 : index
    %lane_column = arith.muli %lane_pair, %c2 : index
    %m_warp = arith.addi %m_block, %warp_m : index
    %n_warp = arith.addi %n_block, %warp_n : index
    %m_lane = arith.addi %m_warp, %lane_row : index
    %n_lane = arith.addi %n_warp, %lane_column : index
    affine.for %i = 0 to 4 {
      affine.for %j = 0 to 4 {
        %sum = memref.load %sums[%i, %j] : memref<4x4x!sum, 5>
        %rounded = arith.truncf %sum : !sum to vector<2x2x!elt>              // cvt.rn.f16x2.f32, two of them
        %column_of_8 = arith.muli %j, %c8 : index
        %n = arith.addi %n_lane, %column_of_8 : index
        %next_n = arith.addi %n, %c1 : index
        %n_inside = arith.cmpi slt, %n, %N : index
        %next_n_inside = arith.cmpi slt, %next_n, %N : index
        %pair_fits = arith.andi %pairs, %next_n_inside : i1
        affine.for %half = 0 to 2 {
          %pair = vector.extract %rounded[%half] : vector<2x!elt> from vector<2x2x!elt>
          %row_of_16 = arith.muli %i, %c16 : index
          %row_of_8 = arith.muli %half, %c8 : index
          %m_16 = arith.addi %m_lane, %row_of_16 : index
          %m = arith.addi %m_16, %row_of_8 : index
          %m_inside = arith.cmpi slt, %m, %M : index
          %inside = arith.andi %m_inside, %n_inside : i1
          scf.if %inside {
            scf.if %pair_fits {
              vector.store %pair, %C[%m, %n] {alignment = 4 : i64} : !matrix, vector<2x!elt>  // st.global.b32
            } else {
              %first = vector.extract %pair[0] : !elt from vector<2x!elt>
              %second = vector.extract %pair[1] : !elt from vector<2x!elt>
              memref.store %first, %C[%m, %n] : !matrix
              scf.if %next_n_inside {
                memref.store %second, %C[%m, %next_n] : !matrix
              }
            }
          }
        }
      }
    }
    gpu.return
  }
}
