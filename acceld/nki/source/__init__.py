"""Read, check and write the source of NKI kernels."""
