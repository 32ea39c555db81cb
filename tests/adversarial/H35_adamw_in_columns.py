# expect: pass
# workload: st_adamw
"""AdamW in pieces of 64 columns, last ones first, the step as a quotient, work shared among engines."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(theta, g, m, v):
    out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    c = nl.arange(64)[None, :]
    for part in nl.affine_range(8):
        gradient = nl.load(g[p, 448 - 64 * part + c])
        momentum = nl.add(
            nisa.tensor_scalar(data=nl.load(m[p, 448 - 64 * part + c]), op0=nl.multiply, operand0=0.9),
            nisa.tensor_scalar(data=gradient, op0=nl.multiply, operand0=0.1, engine=nisa.vector_engine),
        )
        square = nisa.activation(op=nl.square, data=gradient)
        second = nl.add(nl.multiply(nl.load(v[p, 448 - 64 * part + c]), 0.999), nl.multiply(square, 0.001))
        root = nl.add(nisa.activation(op=nl.sqrt, data=second, scale=1000.0), 1e-8)
        step = nl.multiply(nl.divide(momentum, root), 0.01)
        old = nl.load(theta[p, 448 - 64 * part + c])
        new = nl.subtract(nl.subtract(old, nl.multiply(old, 1e-5)), step)
        nl.store(out[p, 448 - 64 * part + c], value=new)
    return out
