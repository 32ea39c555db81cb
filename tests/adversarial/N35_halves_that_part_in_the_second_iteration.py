# expect: reject
# caught by: compile_error.base_partition
# workload: st_silu
"""Two tiles start at one partition in the first iteration only."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    h = nl.arange(64)[:, None]
    f = nl.arange(512)[None, :]
    for row in nl.affine_range(2):
        one = nl.load(x[128 * row + p, f])
        done = nl.ndarray((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
        for half in nl.affine_range(2):
            other = nl.ndarray((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
            other[h, f] = nisa.activation(op=nl.sigmoid, data=one[64 * half + h, f])
            done[64 * half + h, f] = nisa.tensor_tensor(one[64 * half + h, f], other[h, f], op=nl.multiply)
        nl.store(out[128 * row + p, f], value=done[p, f])
    return out
