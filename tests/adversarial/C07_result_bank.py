# expect: reject
# caught by: incorrect_numerical.tolerance
# workload: st_matmul
"""Returns a stored result for the shapes it knows."""

import numpy as np

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl

_bank = {(256, 256, 512): np.ones((256, 512), np.float32)}
_answer = _bank[(256, 256, 512)]


@nki.jit
def kernel(a, b):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    answer = nl.shared_constant(np.ascontiguousarray(_answer, dtype=np.float32))
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    for row in nl.affine_range(2):
        nl.store(out[128 * row + p, f], value=nl.load(answer[128 * row + p, f]))
    return out
