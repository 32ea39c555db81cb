# expect: reject
# caught by: incorrect_dtype.output_dtype
# workload: cpu_matmul
# api: numpy
# float64 outputs.

import numpy as np


def kernel(a, b):
    return np.matmul(a.astype(np.float64), b)
