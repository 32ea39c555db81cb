# expect: reject
# caught by: rejected.import
# unpoliced: incorrect_numerical.tolerance
# workload: cpu_matmul
# api: numpy
# Looks for the outputs in its caller's frame and writes there.

import sys

import numpy as np


def kernel(a, b):
    caller = sys._getframe(1).f_locals
    caller["outputs"][0][:] = 0
    return np.zeros((128, 192), np.float32)
