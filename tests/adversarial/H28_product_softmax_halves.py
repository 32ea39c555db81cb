# expect: pass
# workload: st_product_softmax
"""Softmax of a product, its columns in halves."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(a, b):
    out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    h = nl.arange(64)[:, None]
    c = nl.arange(64)[None, :]
    f = nl.arange(512)[None, :]
    n = nl.arange(256)[None, :]
    left = nl.load(a[p, c])
    logits = nl.ndarray((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
    for half in nl.affine_range(2):
        logits[p, 256 * half + n] = nl.copy(nl.matmul(left, nl.load(b[h, 256 * half + n])))
    greatest = nl.max(logits[p, f], axis=[1])
    weight = nl.exp(nl.subtract(logits[p, f], greatest))
    nl.store(out[p, f], value=nl.divide(weight, nl.sum(weight, axis=[1])))
    return out
