# expect: reject
# caught by: runtime_error.undefined_memory
# workload: st_silu
"""Multiplies by one where any number of a row, written or not, is above a bound."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    w = nl.arange(520)[None, :]
    for row in nl.affine_range(2):
        tile = nl.load(x[128 * row + p, w], mask=(w < 512))
        above = nisa.tensor_scalar(data=tile[p, w], op0=nl.greater, operand0=-3.0e38)
        some = nl.minimum(nisa.tensor_reduce(nl.add, data=above, axis=[1]), 1.0)
        done = nisa.activation(op=nl.silu, data=tile[p, f])
        nl.store(out[128 * row + p, f], value=nisa.tensor_scalar(data=done, op0=nl.multiply, operand0=some))
    return out
