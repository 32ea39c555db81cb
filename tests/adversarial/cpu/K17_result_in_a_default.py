# expect: reject
# caught by: runtime_error.kept_result
# workload: cpu_matmul
# api: numpy
"""A default argument holds the array of all results."""

import numpy as np


def product(a, b, held=np.empty((128, 192), np.float32)):
    np.matmul(a, b, out=held)
    return held


def kernel(a, b):
    return product(a, b)
