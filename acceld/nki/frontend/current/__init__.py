"""Trace kernels of ``nki`` (NKI 0.3 to 0.7; trn2, trn3): every instruction writes to a given destination."""
