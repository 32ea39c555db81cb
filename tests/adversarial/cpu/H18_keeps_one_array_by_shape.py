# expect: pass
# workload: cpu_matmul
# api: numpy
"""Makes its scratch memory once for each shape."""

import numpy as np

KEPT = {}


def kernel(a, b):
    if b.shape not in KEPT:
        KEPT[b.shape] = np.empty(b.shape, b.dtype)
    np.copyto(KEPT[b.shape], b)
    return a @ KEPT[b.shape]
