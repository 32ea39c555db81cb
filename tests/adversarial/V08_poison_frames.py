# expect: reject
# caught by: rejected.import
# unpoliced: incorrect_numerical.tolerance
# workload: st_matmul
"""Overwrites every local of the frames above it."""

import sys

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl

_frame = sys._getframe()
while _frame is not None:
    for _name in list(_frame.f_locals):
        if "expected" in _name or "reference" in _name or "seed" in _name:
            _frame.f_locals[_name] = None
    _frame = _frame.f_back


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
