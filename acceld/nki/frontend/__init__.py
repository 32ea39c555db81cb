"""Trace NKI kernels of both API generations (``neuronxcc.nki`` and ``nki``) into Programs."""
