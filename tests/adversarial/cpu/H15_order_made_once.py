# expect: pass
# workload: cpu_matmul
# api: numpy
"""Makes an array of constants once."""

import functools

import numpy as np


@functools.lru_cache(maxsize=None)
def order(count):
    return np.arange(count)[::-1].copy()


def kernel(a, b):
    k = order(a.shape[1])
    return np.matmul(a[:, k], b[k])
