# expect: reject
# caught by: incorrect_shape.output_shape
# workload: cpu_matmul
# api: numpy
# One row that would broadcast.

import numpy as np


def kernel(a, b):
    return np.matmul(a[:1], b)
