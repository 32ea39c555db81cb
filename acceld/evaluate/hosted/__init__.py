"""Evaluate kernels that run with data on this machine: an untrusted worker, and a referee that holds the clock."""
