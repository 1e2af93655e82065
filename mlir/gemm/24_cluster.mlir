// 24 cluster: C = A B on Hopper's tensor cores; two blocks share what they both read. The same algorithm as
// cu/gemm/24_cluster.cu.
//
// Computes  C[m][n] = sum over k of A[m][k] B[n][k],  bf16 or fp16 in and out, fp32 sums, row-major, layout NT: rows of
//           both A and B run along k. Any M, N, K; A and B begin, and so do their rows, at multiples of 16 bytes.
// Idea      In 23 blocks that are neighbours along m read the same B, each for itself. Here they are a cluster of two:
//           each asks for a half of B's tile, to be delivered to both. A stage is then filled by two blocks, so both
//           producers must know that both blocks have emptied it: a warp that has multiplied a stage tells its own
//           block and the other.
//
// Dialects  As in 23. nvvm has the ops of clusters too: the cluster's barrier, mapa, arrivals at another block's
//           mbarriers, and a mask of blocks for the copy engine. There is no inline PTX.
// Tile      128 x 256 x 64 a block, two blocks below each other: 256 x 256. Those are taken 8 rows at a time, down each
//           column of these.
// Threads   As in 22: threads 0 .. 255 multiply, each warp 16 rows of 256 columns, thread 256 copies.
// Shared    229440 bytes, dynamic, as in 23, and at the same addresses in both blocks, on which multicast relies:
//           bytes       0 .. 196607  four stages of A[128][64], 16384 bytes, and B[256][64]; either block asks for 128
//                                    of B's rows
//           bytes  196608 .. 229375  for each of 8 warps two boxes C[16][64]
//           bytes  229376 .. 229407  full of stages 0 .. 3, 8 bytes each
//           bytes  229408 .. 229439  empty of stages 0 .. 3
// Phases    As in 23, but full's 49152 bytes come from both blocks, and empty takes 16 arrivals, of 8 warps here and of
//           8 there. The other block's half may land before it is announced here: the count of bytes is below zero
//           then, but the phase does not end before the arrival. Both blocks walk the same tiles with as many k-blocks,
//           one that lies below C's last row too: it multiplies zeros and stores nothing.
// Registers As in 22: 156 of 168.
// Tails     As in 23.
// Limit     Power: cu/gemm/24_cluster.cu says more.

!global = !llvm.ptr<1>
!shared = !llvm.ptr<3>
!local = !llvm.ptr<5>
!cluster = !llvm.ptr<7>         // shared memory of any block of the cluster
!place = !llvm.struct<(i32, i32)>
#matrix = #nvvm.ld_st_matrix_shape<m = 8, n = 8>
#bits = #nvvm.ld_st_matrix_elt_type<b16>
// A lane's sums: what wgmma gives and takes, one register each.
!sums = !llvm.struct<(f32, f32, f32, f32, f32, f32, f32, f32, f32, f32, f32, f32, f32, f32, f32, f32,
                      f32, f32, f32, f32, f32, f32, f32, f32, f32, f32, f32, f32, f32, f32, f32, f32,
                      f32, f32, f32, f32, f32, f32, f32, f32, f32, f32, f32, f32, f32, f32, f32, f32,
                      f32, f32, f32, f32, f32, f32, f32, f32, f32, f32, f32, f32, f32, f32, f32, f32,
                      f32, f32, f32, f32, f32, f32, f32, f32, f32, f32, f32, f32, f32, f32, f32, f32,
                      f32, f32, f32, f32, f32, f32, f32, f32, f32, f32, f32, f32, f32, f32, f32, f32,
                      f32, f32, f32, f32, f32, f32, f32, f32, f32, f32, f32, f32, f32, f32, f32, f32,
                      f32, f32, f32, f32, f32, f32, f32, f32, f32, f32, f32, f32, f32, f32, f32, f32)>

gpu.module @cluster {
  // The ring, the boxes and the mbarriers, whose size the launch names: `.extern .shared .align 1024 .b8 ring[]`.
  llvm.mlir.global external @ring() {addr_space = 3 : i32, alignment = 1024 : i64} : !llvm.array<0 x i8>

  // Functions of llvm, which its optimiser inlines: PTX has none of them.

  // First row and column of what block `rank` has of number `index`: two tiles below each other, in strips of 8 rows of
  // such pairs, down each column of a strip. It may lie below C's last row.
  llvm.func internal @tile(%index: i32, %rank: i32, %tiles_m: i32, %tiles_n: i32) -> !place
      attributes {always_inline} {
    %c1 = arith.constant 1 : i32
    %c7 = arith.constant 7 : i32
    %c8 = arith.constant 8 : i32
    %height = arith.minsi %tiles_m, %c8 : i32
    %tiles_a_strip = arith.muli %height, %tiles_n : i32
    %strip = arith.divui %index, %tiles_a_strip : i32
    %place = arith.remui %index, %tiles_a_strip : i32
    %first_tile_m = arith.muli %strip, %height : i32
    %rows_left = arith.subi %tiles_m, %first_tile_m : i32
    %rows = arith.minsi %rows_left, %height : i32       // the last strip may be lower
    %tile_n = arith.divui %place, %rows : i32
    %tile_in_strip = arith.remui %place, %rows : i32
    %pair_m = arith.addi %first_tile_m, %tile_in_strip : i32
    %pair_first_m = arith.shli %pair_m, %c1 : i32
    %tile_m = arith.addi %pair_first_m, %rank : i32
    %m = arith.shli %tile_m, %c7 : i32
    %n = arith.shli %tile_n, %c8 : i32
    %nowhere = llvm.mlir.poison : !place
    %with_m = llvm.insertvalue %m, %nowhere[0] : !place
    %with_n = llvm.insertvalue %n, %with_m[1] : !place
    llvm.return %with_n : !place
  }

  // Waits until the phase of this parity is over. mbarrier.try_wait.parity.shared.b64 complete, [barrier], parity: it
  // sleeps, but may be woken early, so it is asked again. (nvvm.mbarrier.try_wait.parity is the whole loop, in inline
  // PTX and with a limit of time.)
  llvm.func internal @wait(%barrier: i32, %parity: i32) attributes {always_inline} {
    %true = arith.constant true
    %at = llvm.inttoptr %barrier : i32 to !shared
    scf.while : () -> () {
      %complete = nvvm.mbarrier.try_wait %at, %parity : !shared, i32 -> i1
      %again = arith.xori %complete, %true : i1
      scf.condition(%again)
    } do {
      scf.yield
    }
    llvm.return
  }

  // As in 23. How many blocks are a cluster, the launch says.
  llvm.func @gemm(%map_A: !llvm.ptr {llvm.byval = !llvm.array<128 x i8>, llvm.align = 64 : i64, nvvm.grid_constant},
                  %map_B: !llvm.ptr {llvm.byval = !llvm.array<128 x i8>, llvm.align = 64 : i64, nvvm.grid_constant},
                  %map_C: !llvm.ptr {llvm.byval = !llvm.array<128 x i8>, llvm.align = 64 : i64, nvvm.grid_constant},
                  %C_ptr: !llvm.ptr, %M: i32, %N: i32, %K: i32, %ldc: i32)
      attributes {nvvm.kernel, nvvm.maxntid = array<i32: 384, 1, 1>, nvvm.minctasm = 1 : i32} {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %c2 = arith.constant 2 : i32
    %c3 = arith.constant 3 : i32
    %c4 = arith.constant 4 : i32
    %c5 = arith.constant 5 : i32
    %c6 = arith.constant 6 : i32
    %c7 = arith.constant 7 : i32
    %c8 = arith.constant 8 : i32
    %c15 = arith.constant 15 : i32
    %c16 = arith.constant 16 : i32
    %c31 = arith.constant 31 : i32
    %c32 = arith.constant 32 : i32
    %c63 = arith.constant 63 : i32
    %c64 = arith.constant 64 : i32
    %c128 = arith.constant 128 : i32
    %c255 = arith.constant 255 : i32
    %c256 = arith.constant 256 : i32
    %c2048 = arith.constant 2048 : i32
    %c4096 = arith.constant 4096 : i32
    %B_tile = arith.constant 16384 : i32
    %B_half = arith.constant 16384 : i32
    %both = arith.constant 3 : i16
    %stage_bytes = arith.constant 49152 : i32
    %boxes_first = arith.constant 196608 : i32
    %full_first = arith.constant 229376 : i32
    %empty_first = arith.constant 229408 : i32
    %all_lanes = arith.constant -1 : i32
    %i64_2 = arith.constant 2 : i64
    %i64_8 = arith.constant 8 : i64
    %i64_512 = arith.constant 512 : i64
    %i64_1024 = arith.constant 1024 : i64
    %i64_3072 = arith.constant 3072 : i64

    // Where a lane's sums are stored when they are done, so that loops can index them; registers, as in 22.
    %done = llvm.alloca %c1 x !sums : (i32) -> !local

    %M_up = arith.addi %M, %c255 : i32
    %N_up = arith.addi %N, %c255 : i32
    %K_up = arith.addi %K, %c63 : i32
    %tiles_m = arith.shrui %M_up, %c8 : i32             // ceil(M / 256): pairs of tiles
    %tiles_n = arith.shrui %N_up, %c8 : i32             // ceil(N / 256)
    %k_blocks = arith.shrui %K_up, %c6 : i32            // ceil(K / 64)
    %tiles = arith.muli %tiles_m, %tiles_n : i32
    %block = nvvm.read.ptx.sreg.ctaid.x : i32
    %blocks = nvvm.read.ptx.sreg.nctaid.x : i32
    %pair = arith.shrui %block, %c1 : i32               // this cluster's first pair of tiles
    %pairs = arith.shrui %blocks, %c1 : i32             // and how far it is from one of its pairs to the next
    %rank = nvvm.read.ptx.sreg.cluster.ctarank : i32    // %cluster_ctarank

    %thread = nvvm.read.ptx.sreg.tid.x : i32
    %lane = arith.andi %thread, %c31 : i32
    %warp = arith.shrui %thread, %c5 : i32
    %ring = llvm.mlir.addressof @ring : !shared
    %base = llvm.ptrtoint %ring : !shared to i32

    // The mbarriers, and who is who, as in 22; but empty hears from both blocks' 8 warps. And all threads of both
    // blocks meet, barrier.cluster.arrive.relaxed.aligned and barrier.cluster.wait.aligned: nobody may deliver to a
    // block, or arrive there, that has not begun. Relaxed: what others must see, the fence has released.
    %is_first = arith.cmpi eq, %thread, %c0 : i32
    scf.if %is_first {
      affine.for %stage = 0 to 4 {
        %stage_32 = arith.index_cast %stage : index to i32
        %offset = arith.muli %stage_32, %c8 : i32
        %full_offset = arith.addi %full_first, %offset : i32
        %empty_offset = arith.addi %empty_first, %offset : i32
        %full = llvm.getelementptr %ring[%full_offset] : (!shared, i32) -> !shared, i8
        %empty = llvm.getelementptr %ring[%empty_offset] : (!shared, i32) -> !shared, i8
        nvvm.mbarrier.init %full, %c1 : !shared, i32
        nvvm.mbarrier.init %empty, %c16 : !shared, i32
      }
      nvvm.fence.mbarrier.init
    }
    nvvm.cluster.arrive.relaxed {aligned}
    nvvm.cluster.wait {aligned}
    %group_of_thread = arith.shrui %thread, %c7 : i32
    %group = nvvm.shfl.sync idx %all_lanes, %group_of_thread, %c0, %c31 : i32 -> i32
    %produces = arith.cmpi eq, %group, %c2 : i32
    scf.if %produces {
      nvvm.setmaxregister decrease 40
      %asks = arith.cmpi eq, %thread, %c256 : i32
      scf.if %asks {
        // Fills the ring with the k-blocks of one tile after another, each as soon as both blocks have emptied its
        // stage. Of B's 256 rows this block asks for 128, rows 128 rank .. 128 rank + 127, to be delivered to both
        // blocks (mask 3), at the same place in each, with word to the mbarrier at the same place: that is the copy's
        // .multicast::cluster. So full counts, in each block, its own A and two halves of B.
        %half_rows = arith.muli %rank, %c128 : i32
        %half_offset = arith.muli %rank, %B_half : i32
        %half_in_stage = arith.addi %half_offset, %B_tile : i32
        %end:2 = scf.for %index = %pair to %tiles step %pairs
            iter_args(%tile_stage = %c0, %tile_other = %c1) -> (i32, i32) : i32 {
          %tile = llvm.call @tile(%index, %rank, %tiles_m, %tiles_n) : (i32, i32, i32, i32) -> !place
          %m = llvm.extractvalue %tile[0] : !place
          %n_tile = llvm.extractvalue %tile[1] : !place
          %n = arith.addi %n_tile, %half_rows : i32
          %after:2 = scf.for %k_block = %c0 to %k_blocks step %c1
              iter_args(%stage = %tile_stage, %other = %tile_other) -> (i32, i32) : i32 {
            %stage_offset = arith.muli %stage, %stage_bytes : i32
            %A_at = arith.addi %base, %stage_offset : i32
            %B_at = arith.addi %A_at, %half_in_stage : i32
            %A_to = llvm.inttoptr %A_at : i32 to !cluster
            %B_to = llvm.inttoptr %B_at : i32 to !cluster
            %barrier_offset = arith.muli %stage, %c8 : i32
            %barrier = arith.addi %base, %barrier_offset : i32
            %full_at = arith.addi %barrier, %full_first : i32
            %empty_at = arith.addi %barrier, %empty_first : i32
            %full = llvm.inttoptr %full_at : i32 to !shared
            %k = arith.muli %k_block, %c64 : i32
            llvm.call @wait(%empty_at, %other) : (i32, i32) -> ()
            nvvm.mbarrier.arrive.expect_tx %full, %stage_bytes : !shared, i32
            nvvm.cp.async.bulk.tensor.shared.cluster.global %A_to, %map_A, %full, box[%k, %m] : !cluster, !llvm.ptr
            nvvm.cp.async.bulk.tensor.shared.cluster.global %B_to, %map_B, %full, box[%k, %n]
                multicast_mask = %both : !cluster, !llvm.ptr
            %is_last = arith.cmpi eq, %stage, %c3 : i32
            %stage_on = arith.addi %stage, %c1 : i32
            %stage_next = arith.select %is_last, %c0, %stage_on : i32
            %turned = arith.xori %other, %c1 : i32
            %other_next = arith.select %is_last, %turned, %other : i32
            scf.yield %stage_next, %other_next : i32, i32
          }
          scf.yield %after#0, %after#1 : i32, i32
        }
        // A block must not end while the other may still arrive at its mbarriers: its producer waits until every stage
        // has been emptied a last time.
        affine.for %s = 0 to 4 iter_args(%stage = %end#0, %other = %end#1) -> (i32, i32) {
          %barrier_offset = arith.muli %stage, %c8 : i32
          %barrier = arith.addi %base, %barrier_offset : i32
          %empty_at = arith.addi %barrier, %empty_first : i32
          llvm.call @wait(%empty_at, %other) : (i32, i32) -> ()
          %is_last = arith.cmpi eq, %stage, %c3 : i32
          %stage_on = arith.addi %stage, %c1 : i32
          %stage_next = arith.select %is_last, %c0, %stage_on : i32
          %turned = arith.xori %other, %c1 : i32
          %other_next = arith.select %is_last, %turned, %other : i32
          affine.yield %stage_next, %other_next : i32, i32
        }
      }
    } else {
      nvvm.setmaxregister increase 232
      // The descriptors of stage 0, as in 22.
      %fixed = arith.constant 0x4000004000010000 : i64
      %start = arith.shrui %base, %c4 : i32
      %start_64 = arith.extui %start : i32 to i64
      %group_64 = arith.extui %group : i32 to i64
      %rows_of_group = arith.muli %group_64, %i64_512 : i64
      %desc_first = arith.ori %start_64, %fixed : i64
      %desc_A_first = arith.addi %desc_first, %rows_of_group : i64
      %desc_B_first = arith.addi %desc_first, %i64_1024 : i64
      %speaks = arith.cmpi eq, %lane, %c0 : i32

      // Lanes 0 and 1 of a warp tell that a stage is empty, lane i block i. mapa.shared::cluster.u64: the address, in
      // the cluster's shared memory, of what lies in that block where the ring lies here. It has 32 bits too.
      %tells = arith.cmpi ult, %lane, %c2 : i32
      %told_rank = arith.andi %lane, %c1 : i32
      %told_ring = nvvm.mapa %ring, %told_rank : !shared -> !cluster
      %told = llvm.ptrtoint %told_ring : !cluster to i32

      // The warp's boxes, and the row of box 0 that this lane names to stmatrix: row lane % 16, chunk lane / 16, at
      // place lane / 16 ^ row % 8. Two chunks on, 16 columns, the place is the same with 2 xored: the address, with 32.
      %box_offset = arith.muli %warp, %c4096 : i32
      %box_in_ring = arith.addi %box_offset, %boxes_first : i32
      %box = arith.addi %base, %box_in_ring : i32
      %box_row = arith.andi %lane, %c15 : i32
      %box_row_offset = arith.muli %box_row, %c128 : i32
      %late = arith.shrui %lane, %c4 : i32
      %late_xor_row = arith.xori %late, %lane : i32
      %box_place = arith.andi %late_xor_row, %c7 : i32
      %box_place_offset = arith.muli %box_place, %c16 : i32
      %box_row_at = arith.addi %box, %box_row_offset : i32
      %box_at = arith.addi %box_row_at, %box_place_offset : i32

      // Whether the copy engine can store C: it wants rows that begin at multiples of 16 bytes.
      %C = llvm.addrspacecast %C_ptr : !llvm.ptr to !global
      %C_int = llvm.ptrtoint %C : !global to i32
      %ldc_bytes = arith.muli %ldc, %c2 : i32
      %addresses = arith.ori %C_int, %ldc_bytes : i32
      %odd = arith.andi %addresses, %c15 : i32
      %staged = arith.cmpi eq, %odd, %c0 : i32
      %warp_rows = arith.muli %warp, %c16 : i32

      %end:2 = scf.for %index = %pair to %tiles step %pairs
          iter_args(%tile_stage = %c0, %tile_parity = %c0) -> (i32, i32) : i32 {
        %zeros = llvm.mlir.zero : !sums
        %after:4 = scf.for %k_block = %c0 to %k_blocks step %c1
            iter_args(%sums = %zeros, %stage = %tile_stage, %parity = %tile_parity, %before = %c0)
            -> (!sums, i32, i32, i32) : i32 {
          %barrier_offset = arith.muli %stage, %c8 : i32
          %barrier = arith.addi %base, %barrier_offset : i32
          %full_at = arith.addi %barrier, %full_first : i32
          %empty_in_ring = arith.addi %barrier_offset, %empty_first : i32
          %stage_64 = arith.extui %stage : i32 to i64
          %stage_on_64 = arith.muli %stage_64, %i64_3072 : i64
          %desc_A = arith.addi %desc_A_first, %stage_on_64 : i64
          %desc_B = arith.addi %desc_B_first, %stage_on_64 : i64
          llvm.call @wait(%full_at, %parity) : (i32, i32) -> ()
          nvvm.wgmma.fence.aligned
          %sums_next = affine.for %step = 0 to 4 iter_args(%to_step = %sums) -> (!sums) {
            %step_64 = arith.index_cast %step : index to i64
            %step_on = arith.muli %step_64, %i64_2 : i64
            %a = arith.addi %desc_A, %step_on : i64
            %b = arith.addi %desc_B, %step_on : i64
            %after_step = nvvm.wgmma.mma_async %a, %b, %to_step, <m = 64, n = 256, k = 16>,
                D [<f32>, <one>], A [#wgmma_elt, <one>, <row>], B [#wgmma_elt, <one>, <col>] : !sums -> !sums
            affine.yield %after_step : !sums
          }
          nvvm.wgmma.commit.group.sync.aligned
          nvvm.wgmma.wait.group.sync.aligned 1          // the k-block before is multiplied
          %has_before = arith.cmpi sgt, %k_block, %c0 : i32
          %hands_back = arith.andi %has_before, %tells : i1
          // mbarrier.arrive.shared::cluster.b64: with the default semantics, as nothing is published. .release.cluster
          // would be a fence of all memory in every k-block.
          scf.if %hands_back {
            %empty_at = arith.addi %told, %before : i32
            %empty = llvm.inttoptr %empty_at : i32 to !cluster
            nvvm.mbarrier.arrive %empty : !cluster
          }
          %is_last = arith.cmpi eq, %stage, %c3 : i32
          %stage_on = arith.addi %stage, %c1 : i32
          %stage_next = arith.select %is_last, %c0, %stage_on : i32
          %turned = arith.xori %parity, %c1 : i32
          %parity_next = arith.select %is_last, %turned, %parity : i32
          scf.yield %sums_next, %stage_next, %parity_next, %empty_in_ring : !sums, i32, i32, i32
        }
        %tile = llvm.call @tile(%index, %rank, %tiles_m, %tiles_n) : (i32, i32, i32, i32) -> !place
        %m_tile = llvm.extractvalue %tile[0] : !place
        %n_tile = llvm.extractvalue %tile[1] : !place
        %m_warp = arith.addi %m_tile, %warp_rows : i32
        nvvm.wgmma.wait.group.sync.aligned 0            // until here nobody may touch the sums
        scf.if %tells {                                 // the tile's last stage: the producers want it for the next
          %empty_at = arith.addi %told, %after#3 : i32
          %empty = llvm.inttoptr %empty_at : i32 to !cluster
          nvvm.mbarrier.arrive %empty : !cluster
        }
        llvm.store %after#0, %done : !sums, !local

        scf.if %staged {
          // The warp's 16 rows in four pieces of 64 columns, by box 0, box 1, box 0, box 1.
          affine.for %piece = 0 to 4 {
            %piece_32 = arith.index_cast %piece : index to i32
            %which = arith.andi %piece_32, %c1 : i32
            %which_offset = arith.muli %which, %c2048 : i32
            // cp.async.bulk.wait_group.read 1: all but the latest of this thread's stores have read their box, so that
            // this one may be written again. Lane 0 asked for them, so lane 0 waits; bar.warp.sync tells the others.
            scf.if %speaks {
              nvvm.cp.async.bulk.wait_group 1 {read}
            }
            nvvm.bar.warp.sync %all_lanes : i32
            // stmatrix.sync.aligned.m8n8.x4.shared.b16: four 8 x 8 matrices, rows 0 .. 7 and 8 .. 15 of 8 columns, then
            // of the next 8. Two sums, rounded and packed, are a lane's part of one just as they are.
            affine.for %j = 0 to 4 {
              %j_32 = arith.index_cast %j : index to i32
              %piece_sums = arith.muli %piece_32, %c32 : i32
              %j_sums = arith.muli %j_32, %c8 : i32
              %first = arith.addi %piece_sums, %j_sums : i32
              %from = llvm.getelementptr %done[%first] : (!local, i32) -> !local, f32
              %from_1 = llvm.getelementptr %from[2] : (!local) -> !local, f32
              %from_2 = llvm.getelementptr %from[4] : (!local) -> !local, f32
              %from_3 = llvm.getelementptr %from[6] : (!local) -> !local, f32
              %two_0 = llvm.load %from {alignment = 4 : i64} : !local -> vector<2xf32>
              %two_1 = llvm.load %from_1 {alignment = 4 : i64} : !local -> vector<2xf32>
              %two_2 = llvm.load %from_2 {alignment = 4 : i64} : !local -> vector<2xf32>
              %two_3 = llvm.load %from_3 {alignment = 4 : i64} : !local -> vector<2xf32>
              %rounded_0 = arith.truncf %two_0 : vector<2xf32> to vector<2x!elt>        // cvt.rn.bf16x2.f32, or f16x2
              %rounded_1 = arith.truncf %two_1 : vector<2xf32> to vector<2x!elt>
              %rounded_2 = arith.truncf %two_2 : vector<2xf32> to vector<2x!elt>
              %rounded_3 = arith.truncf %two_3 : vector<2xf32> to vector<2x!elt>
              %word_0 = llvm.bitcast %rounded_0 : vector<2x!elt> to i32
              %word_1 = llvm.bitcast %rounded_1 : vector<2x!elt> to i32
              %word_2 = llvm.bitcast %rounded_2 : vector<2x!elt> to i32
              %word_3 = llvm.bitcast %rounded_3 : vector<2x!elt> to i32
              %chunks_on = arith.muli %j_32, %c32 : i32
              %row_at = arith.xori %box_at, %chunks_on : i32
              %row_of_box = arith.addi %row_at, %which_offset : i32
              %row = llvm.inttoptr %row_of_box : i32 to !shared
              nvvm.stmatrix %row, %word_0, %word_1, %word_2, %word_3
                  {layout = #nvvm.mma_layout<row>, shape = #matrix, eltType = #bits} : !shared, i32, i32, i32, i32
            }
            // fence.proxy.async.shared::cta: what this lane has written comes before what the copy engine reads. Then
            // every lane's, and lane 0 asks for the box to be stored at (n, m); what lies outside C is left out.
            // cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [map, {n, m}], [box], and it is a group of its
            // own, cp.async.bulk.commit_group. Nobody waits here.
            nvvm.fence.proxy {kind = #nvvm.proxy_kind<async.shared>, space = #nvvm.shared_space<cta>}
            nvvm.bar.warp.sync %all_lanes : i32
            scf.if %speaks {
              %columns_before = arith.muli %piece_32, %c64 : i32
              %n = arith.addi %n_tile, %columns_before : i32
              %box_of_piece = arith.addi %box, %which_offset : i32
              %box_from = llvm.inttoptr %box_of_piece : i32 to !shared
              nvvm.cp.async.bulk.tensor.global.shared.cta %map_C, %box_from, box[%n, %m_warp] : !llvm.ptr, !shared
              nvvm.cp.async.bulk.commit.group
            }
          }
        } else {
          // By elements, each if it is inside. C[m][n] is the lane's first sum.
          %r = arith.shrui %lane, %c2 : i32
          %c = arith.andi %lane, %c3 : i32
          %n_in_block = arith.muli %c, %c2 : i32
          %m = arith.addi %m_warp, %r : i32
          %n = arith.addi %n_tile, %n_in_block : i32
          %m_left = arith.subi %M, %m : i32
          %n_left = arith.subi %N, %n : i32
          %m_64 = arith.extsi %m : i32 to i64
          %n_64 = arith.extsi %n : i32 to i64
          %ldc_64 = arith.extsi %ldc : i32 to i64
          %row_start = arith.muli %m_64, %ldc_64 : i64
          %element = arith.addi %row_start, %n_64 : i64
          %C_first = llvm.getelementptr %C[%element] : (!global, i64) -> !global, !elt
          %rows_8 = arith.muli %ldc_64, %i64_8 : i64    // elements to 8 rows on
          affine.for %j = 0 to 32 {
            affine.for %h = 0 to 2 iter_args(%to_row = %C_first) -> (!global) {
              %j_32 = arith.index_cast %j : index to i32
              %h_32 = arith.index_cast %h : index to i32
              %rows_before = arith.muli %h_32, %c8 : i32
              %columns_before = arith.muli %j_32, %c8 : i32
              %of_j = arith.muli %j_32, %c4 : i32
              %of_h = arith.muli %h_32, %c2 : i32
              %i = arith.addi %of_j, %of_h : i32
              %from = llvm.getelementptr %done[%i] : (!local, i32) -> !local, f32
              %two = llvm.load %from {alignment = 4 : i64} : !local -> vector<2xf32>
              %rounded = arith.truncf %two : vector<2xf32> to vector<2x!elt>
              %to = llvm.getelementptr %to_row[%columns_before] : (!global, i32) -> !global, !elt
              %in_row = arith.cmpi sgt, %m_left, %rows_before : i32
              affine.for %e = 0 to 2 {
                %e_32 = arith.index_cast %e : index to i32
                %columns_to = arith.addi %columns_before, %e_32 : i32
                %in_column = arith.cmpi sgt, %n_left, %columns_to : i32
                %stored = arith.andi %in_row, %in_column : i1
                scf.if %stored {
                  %sum = vector.extract %rounded[%e] : !elt from vector<2x!elt>
                  %to_element = llvm.getelementptr %to[%e_32] : (!global, i32) -> !global, !elt
                  llvm.store %sum, %to_element : !elt, !global          // st.global.b16
                }
              }
              %below = llvm.getelementptr %to_row[%rows_8] : (!global, i64) -> !global, !elt
              affine.yield %below : !global
            }
          }
        }
        scf.yield %after#1, %after#2 : i32, i32
      }
      // The boxes are shared memory of this block, and must live until the copy engine has read them.
      scf.if %speaks {
        nvvm.cp.async.bulk.wait_group 0 {read}
      }
    }
    llvm.return
  }
}
