# expect: reject
# caught by: compile_error.base_partition
# workload: st_silu
"""Multiplies the upper half of one tile by the lower half of another one."""

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
        other = nl.ndarray((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
        done = nl.ndarray((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
        other[64 + h, f] = nisa.activation(op=nl.sigmoid, data=one[h, f])
        other[h, f] = nisa.activation(op=nl.sigmoid, data=one[64 + h, f])
        done[h, f] = nisa.tensor_tensor(one[h, f], other[64 + h, f], op=nl.multiply)
        done[64 + h, f] = nisa.tensor_tensor(one[64 + h, f], other[h, f], op=nl.multiply)
        nl.store(out[128 * row + p, f], value=done[p, f])
    return out
