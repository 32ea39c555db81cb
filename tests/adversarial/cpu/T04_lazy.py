# expect: reject
# caught by: rejected.class
# unpoliced: incorrect_dtype.output_type
# workload: cpu_matmul
# api: numpy
# An array that computes itself when somebody looks.

import numpy as np


class Lazy(np.ndarray):
    def __array__(self, *ways):
        return np.zeros(self.shape, np.float32)


def kernel(a, b):
    return np.zeros((128, 192), np.float32).view(Lazy)
