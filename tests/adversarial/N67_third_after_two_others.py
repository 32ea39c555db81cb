# expect: reject
# caught by: runtime_error.affine_order
# workload: st_silu
"""Wrong only if iteration 7 of 9 runs after iteration 2, and iteration 2 after iteration 5."""

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
        worse = nl.multiply(done, 0.5)
        one = nl.ndarray((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
        two = nl.ndarray((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
        one[p, f] = nisa.tensor_copy(done)
        two[p, f] = nisa.tensor_copy(done)
        for i in nl.affine_range(9):
            nl.store(out[128 * row + p, f], value=two[p, f], mask=(i + 0 * p + 0 * f >= 7) & (i + 0 * p + 0 * f <= 7))
            two[p, f] = nisa.tensor_copy(one[p, f], mask=(i + 0 * p + 0 * f >= 2) & (i + 0 * p + 0 * f <= 2))
            one[p, f] = nisa.tensor_copy(worse, mask=(i + 0 * p + 0 * f >= 5) & (i + 0 * p + 0 * f <= 5))
    return out
