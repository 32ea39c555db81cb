# expect: reject
# caught by: runtime_error.kept_settings
# workload: cpu_matmul
# api: numpy
"""Leaves numpy's print options changed."""

import numpy as np


def kernel(a, b):
    np.set_printoptions(precision=2)
    return np.matmul(a, b)
