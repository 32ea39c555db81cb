# expect: policy
# caught by: rejected.import
# workload: cpu_matmul
# api: numpy
# at_least: 0.8
# Changes every clock that Python has.

import time

import numpy as np

time.perf_counter = time.monotonic = time.time = lambda: 0.0
time.perf_counter_ns = time.monotonic_ns = time.clock_gettime_ns = lambda *clock: 0


def kernel(a, b):
    out = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for k in range(a.shape[1]):
        out += a[:, k : k + 1] * b[k : k + 1, :]
    return out
