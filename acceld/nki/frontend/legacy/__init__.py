"""Trace kernels of the ``neuronxcc.nki`` API (SDK up to 2.29)."""
