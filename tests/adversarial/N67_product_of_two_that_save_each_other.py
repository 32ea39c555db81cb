# expect: reject
# caught by: runtime_error.affine_order
# workload: st_silu
"""Adds the product of two changes: each is zero unless its own pair of iterations runs in another order."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    for row in nl.static_range(2):
        tile = nl.load(x[128 * row + p, f])
        done = nisa.activation(op=nl.silu, data=tile)
        ones = nl.ndarray((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
        ones[p, f] = nisa.memset((128, 512), 1.0, nl.float32)
        early = nl.ndarray((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
        late = nl.ndarray((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
        early[p, f] = nisa.memset((128, 512), 0.0, nl.float32)
        late[p, f] = nisa.memset((128, 512), 1.0, nl.float32)
        for i in nl.affine_range(12):
            wrong = nl.multiply(early[p, f], late[p, f], mask=(i + 0 * p + 0 * f >= 6) & (i + 0 * p + 0 * f <= 6))
            value = nl.add(done, wrong, mask=(i + 0 * p + 0 * f >= 6) & (i + 0 * p + 0 * f <= 6))
            nl.store(out[128 * row + p, f], value=value, mask=(i + 0 * p + 0 * f >= 6) & (i + 0 * p + 0 * f <= 6))
            late[p, f] = nl.multiply(ones, 0.0, mask=(i + 0 * p + 0 * f <= 2) & (i + 0 * p + 0 * f >= 2))
            early[p, f] = nisa.tensor_copy(ones, mask=(i + 0 * p + 0 * f >= 9) & (i + 0 * p + 0 * f <= 9))
    return out
