"""Search for faster kernels: the loop, selection, memory, budget and strategies."""
