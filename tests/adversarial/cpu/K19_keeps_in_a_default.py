# expect: reject
# caught by: runtime_error.kept_memory
# workload: cpu_matmul
# api: numpy
"""Keeps arguments in a default argument."""

import numpy as np


def product(a, b, kept=[]):
    kept.append(a[:1].copy())
    return np.matmul(a, b)


def kernel(a, b):
    return product(a, b)
