# expect: pass
# workload: st_silu
"""Iterations that add in place, under masks, keep a maximum and leave rows of a former iteration that nothing uses."""

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
        held = nl.ndarray((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
        most = nl.ndarray((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
        held[p, f] = nisa.memset((128, 512), 0.0, nl.float32)
        most[p, f] = nisa.memset((128, 512), 0.0, nl.float32)
        part = nisa.tensor_scalar(nisa.activation(op=nl.silu, data=tile), op0=nl.multiply, operand0=0.25)
        for i in nl.affine_range(5):
            held[p, f] = nisa.tensor_tensor(held[p, f], part, op=nl.add, mask=(i + 0 * p + 0 * f <= 2))
            most[p, f] = nisa.tensor_tensor(most[p, f], tile, op=nl.maximum, mask=(i + 0 * p + 0 * f >= 1))
            held[p, f] = nisa.tensor_tensor(part, held[p, f], op=nl.add, mask=(i + 0 * p + 0 * f >= 4))
        same = nisa.tensor_tensor(most[p, f], nl.maximum(tile, 0.0), op=nl.subtract)
        nl.store(out[128 * row + p, f], value=nl.add(held[p, f], same))
    return out
