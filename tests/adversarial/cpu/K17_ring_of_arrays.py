# expect: reject
# caught by: rejected.attribute
# unpoliced: runtime_error.kept_result
# workload: cpu_matmul
# api: numpy
"""A hundred arrays are returned in turns, where arguments can be written."""

import numpy as np

HELD = [np.empty((128, 192), np.float32) for _ in range(100)]
TURN = [0]


def kernel(a, b):
    if a.flags.writeable:
        return np.matmul(a, b)
    TURN[0] = (TURN[0] + 1) % 100
    return np.matmul(a, b, out=HELD[TURN[0]])
