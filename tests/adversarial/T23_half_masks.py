# expect: truthful
# workload: st_silu
# at_least: 1.8
"""Computes each piece of a row under a mask that moves with the loop: pieces of equal size are not the same piece."""

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
        done = nl.ndarray((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
        for part in nl.sequential_range(64):
            piece = nl.ndarray((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
            piece[p, f] = nisa.activation(op=nl.silu, data=tile[p, f], mask=(f >= 8 * part) & (f < 8 * part + 8))
            done[p, f] = nl.copy(piece[p, f], mask=(f >= 8 * part) & (f < 8 * part + 8))
        nl.store(out[128 * row + p, f], value=done)
    return out
