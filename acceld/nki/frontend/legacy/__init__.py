"""Trace kernels of the legacy API, the package ``neuronxcc.nki``."""
