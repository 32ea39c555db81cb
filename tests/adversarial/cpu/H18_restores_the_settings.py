# expect: pass
# workload: cpu_matmul
# api: numpy
"""Changes numpy's treatment of errors while it computes."""

import numpy as np


def kernel(a, b):
    with np.errstate(all="ignore"):
        return np.matmul(a, b)
