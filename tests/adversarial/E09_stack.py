# expect: reject
# caught by: rejected.import
# unpoliced: compile_error.crash|compile_error.memory
# workload: st_matmul
"""Recurses until the stack overflows."""

import sys

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl

sys.setrecursionlimit(10**9)


def _down(depth):
    return list(map(_down, [depth + 1]))  # through C, so that the machine's stack grows


_down(0)


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
