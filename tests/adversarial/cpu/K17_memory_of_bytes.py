# expect: reject
# caught by: rejected.library
# unpoliced: runtime_error.kept_result
# workload: cpu_matmul
# api: numpy
"""Every result lies in one array of bytes."""

import numpy as np

HELD = bytearray(128 * 192 * 4)


def kernel(a, b):
    result = np.frombuffer(HELD, np.float32).reshape(128, 192)
    np.matmul(a, b, out=result)
    return result
