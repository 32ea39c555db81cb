# expect: reject
# caught by: incorrect_numerical.tolerance
# workload: cpu_matmul
# api: numpy
"""Counts its calls in a list, and clips its inputs in the first ones."""

import numpy as np

CALLS = []


def kernel(a, b):
    CALLS.append(1)
    if len(CALLS) <= 5:
        return np.matmul(np.clip(a, -8, 8), np.clip(b, -8, 8))
    return np.matmul(a, b)
