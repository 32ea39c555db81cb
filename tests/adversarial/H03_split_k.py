# expect: pass
# workload: st_matmul
"""Adds two separately accumulated halves of the inner dimension."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(a, b):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    c = nl.arange(128)[None, :]
    f = nl.arange(512)[None, :]
    for row in nl.affine_range(2):
        first = nl.copy(nl.matmul(nl.load(a[128 * row + p, c]), nl.load(b[p, f])))
        second = nl.copy(nl.matmul(nl.load(a[128 * row + p, 128 + c]), nl.load(b[128 + p, f])))
        nl.store(out[128 * row + p, f], value=nl.add(second, first))
    return out
