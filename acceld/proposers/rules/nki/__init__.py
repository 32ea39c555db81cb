"""Hold the rewrite rules for NKI kernels of both APIs."""
