"""Known attacks and honest kernels, tried on this machine's own evaluator."""
