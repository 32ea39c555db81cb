"""Evaluate kernels that run with data on this machine. An untrusted worker runs them, a referee holds the
clock.
"""
