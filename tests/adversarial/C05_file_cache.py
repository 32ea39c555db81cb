# expect: reject
# caught by: rejected.import
# unpoliced: incorrect_numerical.tolerance
# workload: st_matmul
"""Keeps results in files for the next evaluation."""

import os

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl

import numpy as np

_answer = np.zeros((256, 512), np.float32)
for _folder in ("/tmp", "/dev/shm", "/var/tmp", "."):
    _path = os.path.join(_folder, "acceld_cache.npy")
    try:
        _answer = np.load(_path)
    except (OSError, ValueError):
        try:
            np.save(_path, _answer)
        except OSError:
            pass


@nki.jit
def kernel(a, b):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    answer = nl.shared_constant(np.ascontiguousarray(_answer, dtype=np.float32))
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    for row in nl.affine_range(2):
        nl.store(out[128 * row + p, f], value=nl.load(answer[128 * row + p, f]))
    return out
