# expect: reject
# caught by: compile_error.view_written
# workload: st_silu
"""The part of a tile that a view shows is overwritten, and then the view is read."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    h = nl.arange(256)[None, :]
    for row in nl.affine_range(2):
        for part in nl.affine_range(2):
            tile = nl.ndarray((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
            tile[p, h] = nl.load(x[128 * row + p, 256 * part + h])
            kept = tile[0:128, 0:256].view(nl.uint16).view(nl.float32)
            gate = nisa.activation(op=nl.sigmoid, data=tile[p, h])
            tile[p, 128 + h] = nl.multiply(gate, 1.0)
            nl.store(out[128 * row + p, 256 * part + h], value=nl.multiply(kept, gate))
    return out
