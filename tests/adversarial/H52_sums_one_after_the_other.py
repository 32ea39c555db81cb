# expect: pass
# workload: st_softmax
"""Softmax whose sums are the last column of a scan, which adds one element after the other."""

import numpy as np

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    last = 511 + nl.arange(1)[None, :]
    ones = nl.full((nl.par_dim(128), 512), 1.0, dtype=nl.float32)
    for row in nl.affine_range(2):
        tile = nl.load(x[128 * row + p, f])
        weight = nl.exp(nl.subtract(tile, nl.max(tile, axis=[1])))
        sums = nl.ndarray((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
        sums[p, f] = nisa.tensor_tensor_scan(ones, weight, initial=0.0, op0=np.multiply, op1=np.add)
        nl.store(out[128 * row + p, f], value=nl.divide(weight, sums[p, last]))
    return out
