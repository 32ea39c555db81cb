# expect: reject
# workload: cpu_matmul
# api: numpy
# One row that would broadcast.

import numpy as np


def kernel(a, b):
    return np.matmul(a[:1], b)
