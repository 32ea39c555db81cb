# expect: reject
# caught by: compile_error.access_pattern
# workload: st_silu
"""A product of two tiles walks five free axes; an engine has four."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    P, A, B, C, D, E = nl.mgrid[0:128, 0:2, 0:2, 0:2, 0:2, 0:32]
    walk = 32 * A + 64 * B + 128 * C + 256 * D + E
    for row in nl.affine_range(2):
        one = nl.load(x[128 * row + p, f])
        done = nl.ndarray((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
        other = nisa.activation(op=nl.sigmoid, data=one)
        done[P, walk] = nisa.tensor_tensor(one[P, walk], other[P, walk], op=nl.multiply)
        nl.store(out[128 * row + p, f], value=done[p, f])
    return out
