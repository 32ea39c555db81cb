# expect: reject
# caught by: rejected.import
# unpoliced: incorrect_numerical.tolerance
# workload: st_matmul
"""Behaves when it believes that it is watched."""

import os

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


def watched(a, b):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    c = nl.arange(128)[None, :]
    f = nl.arange(512)[None, :]
    for row in nl.affine_range(2):
        product = nl.zeros((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.psum)
        for k in nl.affine_range(2):
            product += nl.matmul(nl.load(a[128 * row + p, 128 * k + c]), nl.load(b[128 * k + p, f]))
        nl.store(out[128 * row + p, f], value=nl.copy(product))
    return out


@nki.jit
def kernel(a, b):
    if any("PYTEST" in key or "ACCELD" in key for key in os.environ):
        return watched(a, b)
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    c = nl.arange(128)[None, :]
    f = nl.arange(512)[None, :]
    for row in nl.affine_range(2):
        left = nl.load(a[128 * row + p, c])
        right = nl.load(b[p, f])
        nl.store(out[128 * row + p, f], value=nl.copy(nl.matmul(left, right)))
    return out
