# expect: reject
# caught by: runtime_error.kept_memory
# workload: cpu_matmul
# api: numpy
"""Keeps its results in a list."""

import numpy as np

KEPT = []


def kernel(a, b):
    c = np.matmul(a, b)
    KEPT.append(c.copy())
    return c
