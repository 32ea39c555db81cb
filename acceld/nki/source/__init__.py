"""Read, check and change the source of NKI kernels."""
