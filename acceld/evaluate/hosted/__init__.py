"""Evaluating kernels that run with data on this machine: a worker nobody believes, and a referee with a clock."""
