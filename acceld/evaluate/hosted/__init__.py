"""Evaluate kernels that run with data on this machine: an untrusted worker runs them, a referee holds the clock."""
