# expect: pass
# workload: st_scan
"""The scan with the decay from a product and a separate exponential."""

import numpy as np

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(delta, u, a, b, c):
    out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    total = nl.zeros((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    h = nl.arange(256)[None, :]
    one = nl.arange(1)[:, None]
    column = nl.arange(1)[None, :]
    drive = nl.multiply(nl.load(u[p, f]), nl.load(delta[p, f]))
    for state in nl.affine_range(4):
        power = nisa.tensor_scalar(data=nl.load(delta[p, f]), op0=nl.multiply, operand0=nl.load(a[p, state + column]))
        driven = nl.multiply(nl.load(b[state + one, f]).broadcast_to((128, 512)), drive)
        scanned = nisa.tensor_tensor_scan(nl.exp(power), driven, initial=0.0, op0=np.multiply, op1=np.add)
        total[p, f] += nl.multiply(nl.load(c[state + one, f]).broadcast_to((128, 512)), scanned)
    nl.store(out[p, f], value=total[p, f])
    return out
