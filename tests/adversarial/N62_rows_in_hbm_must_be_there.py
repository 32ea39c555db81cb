# expect: reject
# caught by: runtime_error.affine_order|incorrect_numerical.affine_order
# workload: st_silu
"""One of nine iterations loads rows of scratch memory that any other one has stored."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    scratch = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.private_hbm)
    for row in nl.static_range(2):
        tile = nl.load(x[128 * row + p, f])
        done = nisa.activation(op=nl.silu, data=tile)
        nl.store(scratch[128 * row + p, f], value=tile)
        for i in nl.affine_range(9):
            nl.store(scratch[128 * row + p, f], value=done, mask=(i + 0 * p + 0 * f <= 3))
            nl.store(scratch[128 * row + p, f], value=done, mask=(i + 0 * p + 0 * f >= 5))
            back = nl.load(scratch[128 * row + p, f], mask=(i + 0 * p + 0 * f >= 4) & (i + 0 * p + 0 * f <= 4))
            nl.store(out[128 * row + p, f], value=back, mask=(i + 0 * p + 0 * f >= 4) & (i + 0 * p + 0 * f <= 4))
    return out
