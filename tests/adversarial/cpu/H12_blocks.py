# expect: pass
# workload: cpu_matmul
# api: numpy
# Blocks of the sum, added up.

import numpy as np


def kernel(a, b):
    out = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for k in range(0, a.shape[1], 64):
        out += np.dot(a[:, k : k + 64], b[k : k + 64])
    return out
