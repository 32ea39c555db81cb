# expect: reject
# caught by: compile_error.overlapping_lives
# workload: st_silu
"""Four blocks rotate through two places; a block is stored after the one two further has taken its place."""

import neuronxcc.nki as nki
import neuronxcc.nki.compiler as ncc
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(256)[None, :]
    place = ncc.sbuf.mod_alloc(base_addr=0, num_free_tiles=(2,))
    done = nl.ndarray((4, nl.par_dim(128), 256), dtype=nl.float32, buffer=place)
    for step in nl.affine_range(4):
        loaded = nl.load(x[128 * (step // 2) + p, 256 * (step % 2) + f])
        done[step, p, f] = nisa.activation(op=nl.silu, data=loaded)
    for step in nl.affine_range(4):
        nl.store(out[128 * (step // 2) + p, 256 * (step % 2) + f], value=done[step, p, f])
    return out
