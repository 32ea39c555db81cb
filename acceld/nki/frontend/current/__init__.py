"""Trace kernels of the current API, the package ``nki``."""
