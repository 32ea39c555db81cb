# expect: reject
# caught by: incorrect_numerical.tolerance
# workload: cpu_matmul
# api: numpy
# The first answer again and again.

import numpy as np

KEPT = {}


def kernel(a, b):
    if a.shape not in KEPT:
        KEPT[a.shape] = np.matmul(a, b)
    return KEPT[a.shape].copy()
