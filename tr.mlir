module attributes {transform.with_named_sequence} {
  gpu.module @e {
    gpu.func @mm16x8x16(%A: memref<16x16xf16>, %B: memref<16x8xf16>, %C: memref<16x8xf32>) kernel attributes {known_block_size = array<i32: 32, 1, 1>} {
      linalg.matmul ins(%A, %B : memref<16x16xf16>, memref<16x8xf16>) outs(%C : memref<16x8xf32>)
      gpu.return
    }
  }
  transform.named_sequence @__transform_main(%m: !transform.any_op {transform.readonly}) {
    %mm = transform.structured.match ops{["linalg.matmul"]} in %m : (!transform.any_op) -> !transform.any_op
    transform.nvgpu.rewrite_matmul_as_mma_sync %mm : (!transform.any_op) -> ()
    transform.yield
  }
}
