# expect: pass
# workload: st_silu
"""SiLU in chunks of 128 columns, backwards."""

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
            tile = nl.load(x[128 - 128 * row + p, 384 - 128 * column + c])
            nl.store(out[128 - 128 * row + p, 384 - 128 * column + c], value=nisa.activation(op=nl.silu, data=tile))
    return out
