# expect: truthful
# workload: st_silu
# at_least: 5.0
"""Transposes by transfers, element by element: not at the price of whole rows."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(256)[None, :]
    for part in nl.affine_range(4):
        tile = nl.load(x[f, 128 * part + p])
        nl.store(out[f, 128 * part + p], value=nisa.activation(op=nl.silu, data=tile))
    return out
