"""Triton kernels on NVIDIA GPUs: host code becomes a plan of launches, which a runner of our own replays and times."""
