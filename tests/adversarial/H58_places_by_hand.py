# expect: pass
# workload: st_silu
"""Two places for each of two tiles, one of which takes the place of a tile that is no longer needed, and masked edges."""

import neuronxcc.nki as nki
import neuronxcc.nki.compiler as ncc
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    first = ncc.sbuf.mod_alloc(base_addr=0, num_free_tiles=(2,))
    second = ncc.sbuf.mod_alloc(base_addr=4096, num_free_tiles=(2,))
    tile = nl.ndarray((3, nl.par_dim(128), 512), dtype=nl.float32, buffer=first)
    gate = nl.ndarray((3, nl.par_dim(128), 512), dtype=nl.float32, buffer=second)
    for step in nl.affine_range(3):
        inside = 100 * step + p < 256
        mine = (p < 100) & inside
        tile[step, p, f] = nl.load(x[100 * step + p, f], mask=mine)
        gate[step, p, f] = nisa.activation(op=nl.sigmoid, data=tile[step, p, f], mask=mine)
        done = nl.ndarray((nl.par_dim(128), 512), dtype=nl.float32, buffer=ncc.sbuf.mod_alloc(base_addr=8192))
        done[p, f] = nisa.tensor_tensor(tile[step, p, f], gate[step, p, f], op=nl.multiply, mask=mine)
        nl.store(out[100 * step + p, f], value=done[p, f], mask=mine)
    return out
