# expect: reject
# caught by: rejected.monkeypatch
# unpoliced: incorrect_numerical.unwritten
# workload: cpu_matmul
# api: numpy
# Replaces what copies its answer out.

import numpy as np

np.copyto = lambda *ignored: None


def kernel(a, b):
    return np.matmul(a, b)
