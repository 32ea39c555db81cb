# expect: reject
# workload: st_matmul
"""Multiplies into more than a PSUM bank."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(a, b):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    h = nl.arange(256)[:, None]
    c = nl.arange(256)[None, :]
    f = nl.arange(512)[None, :]
    nl.store(out[h, f], value=nl.copy(nl.matmul(nl.load(a[h, c]), nl.load(b[h, f]))))
    return out
