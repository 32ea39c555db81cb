# expect: reject
# caught by: runtime_error.activation_range
# workload: st_silu
"""Takes logarithms of numbers below 2^-64."""

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
        done = nisa.activation(op=nl.silu, data=tile)
        size = nl.minimum(nl.abs(tile), 100.0)
        found = nisa.activation(op=nl.log, data=nl.multiply(nl.add(size, 1.0), 1e-21))
        factor = nisa.tensor_scalar(data=found, op0=nl.greater, operand0=-1e30)
        nl.store(out[128 * row + p, f], value=nl.multiply(done, factor))
    return out
