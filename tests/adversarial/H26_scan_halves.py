# expect: pass
# workload: st_scan
"""The scan in two halves, the second starting where the first ends, states backwards."""

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
    for state in nl.affine_range(4):
        delta_tile = nl.load(delta[p, f])
        decay = nisa.activation(op=nl.exp, data=delta_tile, scale=nl.load(a[p, 3 - state + column]))
        drive = nl.multiply(delta_tile, nl.load(u[p, f]))
        driven = nl.multiply(drive, nl.load(b[3 - state + one, f]).broadcast_to((128, 512)))
        scanned = nl.ndarray((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
        scanned[p, h] = nisa.tensor_tensor_scan(decay[p, h], driven[p, h], initial=0.0, op0=np.multiply, op1=np.add)
        scanned[p, 256 + h] = nisa.tensor_tensor_scan(
            decay[p, 256 + h], driven[p, 256 + h], initial=scanned[p, 255 + column], op0=np.multiply, op1=np.add
        )
        total[p, f] += nl.multiply(scanned, nl.load(c[3 - state + one, f]).broadcast_to((128, 512)))
    nl.store(out[p, f], value=total[p, f])
    return out
