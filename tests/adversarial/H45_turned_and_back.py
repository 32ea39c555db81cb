# expect: pass
# workload: st_silu
"""Tiles are turned by the tensor engine, computed upon, and turned back."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    c = nl.arange(128)[None, :]
    for row in nl.affine_range(2):
        for column in nl.affine_range(4):
            turned = nl.copy(nisa.nc_transpose(nl.load(x[128 * row + p, 128 * column + c])))
            done = nl.multiply(turned, nl.sigmoid(turned))
            nl.store(out[128 * row + p, 128 * column + c], value=nl.copy(nisa.nc_transpose(done)))
    return out
