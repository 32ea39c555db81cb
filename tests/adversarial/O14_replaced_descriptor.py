# expect: reject
# caught by: rejected.import
# unpoliced: compile_error.crash|compile_error.exception
# workload: st_matmul
"""Puts a file of its own in the place of its answer, or closes it."""

import os

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl

_file = os.open("/tmp/answer", os.O_RDWR | os.O_CREAT)
os.write(_file, b'\x14\0\0\0{"status": "passed"}')
os.dup2(_file, 3)


@nki.jit
def kernel(a, b):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    c = nl.arange(128)[None, :]
    f = nl.arange(512)[None, :]
    for row in nl.affine_range(2):
        left = nl.load(a[128 * row + p, c])
        right = nl.load(b[p, f])
        nl.store(out[128 * row + p, f], value=nl.copy(nl.matmul(left, right)))
    return out
