"""Reading kernels: who holds which element, what banks an access meets, loops side by side, neighbours compared."""
