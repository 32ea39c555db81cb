# expect: reject
# caught by: incorrect_numerical.tolerance
# workload: cpu_matmul
# api: numpy
# Returns a view of an input.

import numpy as np


def kernel(a, b):
    return b[:128, :]
