"""Make data sets of programs: references, kernels lowered from them, and slow-fast pairs of kernels."""
