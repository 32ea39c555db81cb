# expect: reject
# caught by: runtime_error.exception
# workload: cpu_matmul
# api: numpy
"""Changes the signs of an input, and changes them back."""

import numpy as np


def kernel(a, b):
    np.negative(a, out=a)
    out = np.matmul(a, b)
    np.negative(a, out=a)
    return np.negative(out, out=out)
