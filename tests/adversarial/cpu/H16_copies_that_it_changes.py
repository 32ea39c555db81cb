# expect: pass
# workload: cpu_matmul
# api: numpy
"""Changes copies of its inputs and arrays of its own."""

import numpy as np


def kernel(a, b):
    left = np.asfortranarray(a)
    left *= 2.0
    out = np.empty((a.shape[0], b.shape[1]), np.float32)
    np.matmul(left, b, out=out)
    out *= 0.5
    return out
