# expect: reject
# caught by: runtime_error.kept_settings
# workload: cpu_matmul
# api: numpy
"""Changes numpy's treatment of errors when it is imported."""

import numpy as np

np.seterr(over="ignore")


def kernel(a, b):
    return np.matmul(a, b)
