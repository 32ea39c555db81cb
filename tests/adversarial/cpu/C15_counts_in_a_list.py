# expect: reject
# caught by: incorrect_numerical.tolerance
# workload: cpu_matmul
# api: numpy
"""Counts its calls in a list, and clips its inputs in the first ones."""

import numpy as np

CALLS = [0]


def kernel(a, b):
    CALLS[0] += 1
    if CALLS[0] <= 5:
        return np.matmul(np.clip(a, -8, 8), np.clip(b, -8, 8))
    return np.matmul(a, b)
