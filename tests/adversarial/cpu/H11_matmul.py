# expect: pass
# workload: cpu_matmul
# api: numpy
# numpy's own product.

import numpy as np


def kernel(a, b):
    return a @ b
