"""Search for faster kernels: loop, selection, memory, budget, strategies."""
