# expect: reject
# caught by: runtime_error.kept_settings
# workload: cpu_matmul
# api: numpy
"""Leaves numpy's treatment of errors changed."""

import numpy as np


def kernel(a, b):
    np.seterr(all="ignore")
    return np.matmul(a, b)
