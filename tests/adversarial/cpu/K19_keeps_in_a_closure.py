# expect: reject
# caught by: runtime_error.kept_memory
# workload: cpu_matmul
# api: numpy
"""Keeps a number of each call in a closure."""

import numpy as np


def noting():
    seen = []

    def note(value):
        seen.append(value)

    return note


NOTE = noting()


def kernel(a, b):
    c = np.matmul(a, b)
    NOTE(float(c[0, 0]))
    return c
