"""What is computed: inputs, float64 reference, error bound, FLOPs and bytes of each operation."""
