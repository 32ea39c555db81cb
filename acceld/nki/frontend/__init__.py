"""Trace NKI kernels of both APIs (the packages ``neuronxcc.nki`` and ``nki``) into Programs."""
