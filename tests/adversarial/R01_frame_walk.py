# expect: reject
# caught by: rejected.import
# unpoliced: incorrect_numerical.tolerance
# workload: st_matmul
"""Looks for the answer in the frames above and embeds it."""

import sys

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl

import numpy as np

_frame, _answer = sys._getframe(), None
while _frame is not None:
    for _value in list(_frame.f_locals.values()):
        if isinstance(_value, np.ndarray) and _value.shape == (256, 512):
            _answer = _value
    _frame = _frame.f_back
if _answer is not None:
    raise SystemExit("found the answer")


@nki.jit
def kernel(a, b):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    for row in nl.affine_range(2):
        nl.store(out[128 * row + p, f], value=nl.zeros((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf))
    return out
