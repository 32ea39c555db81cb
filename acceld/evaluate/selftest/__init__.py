"""Run known attacks and honest kernels on this machine's evaluators."""
