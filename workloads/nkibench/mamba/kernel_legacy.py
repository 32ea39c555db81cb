"""State-space scan: for each state, then each tile of 128 channels, one scan over the whole sequence."""

import numpy as np
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(delta, u, a, b, c):
    out = nl.ndarray((256, 7168), dtype=nl.float32, buffer=nl.shared_hbm)
    total = nl.zeros((nl.par_dim(128), 14336), dtype=nl.float32, buffer=nl.sbuf)
    p = nl.arange(128)[:, None]
    f = nl.arange(7168)[None, :]
    one = nl.arange(1)[:, None]
    column = nl.arange(1)[None, :]
    for state in nl.affine_range(16):
        for tile in nl.affine_range(2):
            delta_tile = nl.load(delta[128 * tile + p, f])
            a_column = nl.load(a[128 * tile + p, state + column])
            decay = nisa.activation(op=nl.exp, data=delta_tile, scale=a_column)
            u_tile = nl.load(u[128 * tile + p, f])
            drive = nisa.tensor_tensor(delta_tile, u_tile, op=nl.multiply)
            b_row = nl.load(b[state + one, f])
            driven = nisa.tensor_tensor(drive, b_row.broadcast_to((128, 7168)), op=nl.multiply)
            scanned = nisa.tensor_tensor_scan(decay, driven, initial=0.0, op0=np.multiply, op1=np.add)
            c_row = nl.load(c[state + one, f])
            weighted = nisa.tensor_tensor(scanned, c_row.broadcast_to((128, 7168)), op=nl.multiply)
            total[p, 7168 * tile + f] += weighted
    for tile in nl.affine_range(2):
        nl.store(out[128 * tile + p, f], value=total[p, 7168 * tile + f])
    return out
