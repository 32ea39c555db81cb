# expect: reject
# caught by: incorrect_numerical.tolerance
# workload: cpu_matmul
# api: numpy
"""Counts its calls with an iterator, and clips its inputs in the first ones."""

import itertools

import numpy as np

COUNT = itertools.count()


def kernel(a, b):
    if next(COUNT) < 5:
        return np.matmul(np.clip(a, -8, 8), np.clip(b, -8, 8))
    return np.matmul(a, b)
