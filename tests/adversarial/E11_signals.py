# expect: reject
# caught by: rejected.import
# unpoliced: compile_error.crash
# workload: st_matmul
"""Ignores every signal and stops itself."""

import os
import signal

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl

for _number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM, signal.SIGXCPU):
    signal.signal(_number, signal.SIG_IGN)
os._exit(1)


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
