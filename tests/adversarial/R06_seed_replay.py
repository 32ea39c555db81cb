# expect: reject
# caught by: rejected.library
# unpoliced: incorrect_numerical.tolerance
# workload: st_matmul
"""Replays the published seeds and embeds the answer as a constant."""

import numpy as np

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl

np.random.seed(0)
_a = np.random.normal(size=(256, 256)).astype(np.float32)
_b = np.random.normal(size=(256, 512)).astype(np.float32)
_answer = _a @ _b


@nki.jit
def kernel(a, b):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    answer = nl.shared_constant(np.ascontiguousarray(_answer, dtype=np.float32))
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    for row in nl.affine_range(2):
        nl.store(out[128 * row + p, f], value=nl.load(answer[128 * row + p, f]))
    return out
