# expect: reject
# caught by: compile_error.overlapping_lives
# workload: st_silu
"""A tile lies on the last quarter of one that is still needed."""

import neuronxcc.nki as nki
import neuronxcc.nki.compiler as ncc
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    for row in nl.affine_range(2):
        tile = nl.ndarray((nl.par_dim(128), 512), dtype=nl.float32, buffer=ncc.sbuf.mod_alloc(base_addr=0))
        gate = nl.ndarray((nl.par_dim(128), 512), dtype=nl.float32, buffer=ncc.sbuf.mod_alloc(base_addr=1536))
        tile[p, f] = nl.load(x[128 * row + p, f])
        gate[p, f] = nisa.activation(op=nl.sigmoid, data=tile[p, f])
        done = nl.ndarray((nl.par_dim(128), 512), dtype=nl.float32, buffer=ncc.sbuf.mod_alloc(base_addr=8192))
        done[p, f] = nisa.tensor_tensor(tile[p, f], gate[p, f], op=nl.multiply)
        nl.store(out[128 * row + p, f], value=done[p, f])
    return out
