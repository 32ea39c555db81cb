# expect: reject
# caught by: incorrect_numerical.tolerance
# workload: st_scan
"""The state-space scan with exp(x) as 1 + x + x*x/2, good enough near zero only."""

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
    one = nl.arange(1)[:, None]
    column = nl.arange(1)[None, :]
    for state in nl.affine_range(4):
        delta_tile = nl.load(delta[p, f])
        power = nisa.tensor_scalar(data=delta_tile, op0=nl.multiply, operand0=nl.load(a[p, state + column]))
        half = nisa.tensor_scalar(data=power, op0=nl.multiply, operand0=0.5, op1=nl.add, operand1=1.0)
        decay = nl.add(nl.multiply(power, half), 1.0)
        drive = nl.multiply(delta_tile, nl.load(u[p, f]))
        driven = nl.multiply(drive, nl.load(b[state + one, f]).broadcast_to((128, 512)))
        scanned = nisa.tensor_tensor_scan(decay, driven, initial=0.0, op0=np.multiply, op1=np.add)
        total[p, f] += nl.multiply(scanned, nl.load(c[state + one, f]).broadcast_to((128, 512)))
    nl.store(out[p, f], value=total[p, f])
    return out
