# expect: reject
# caught by: runtime_error.kept_settings
# workload: cpu_matmul
# api: numpy
"""Leaves numpy's buffer size changed."""

import numpy as np


def kernel(a, b):
    np.setbufsize(65536)
    return np.matmul(a, b)
