"""Trace kernels of both API generations."""
