# expect: reject
# caught by: incorrect_numerical.tolerance
# workload: st_silu
"""SiLU that leaves out what is smaller than 3e-10."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    for row in nl.affine_range(2):
        tile = nl.load(x[128 * row + p, f])
        large = nisa.tensor_scalar(data=nl.multiply(tile, tile), op0=nl.greater, operand0=9e-20)
        done = nl.multiply(tile, nisa.activation(op=nl.sigmoid, data=tile))
        nl.store(out[128 * row + p, f], value=nl.multiply(done, large))
    return out
