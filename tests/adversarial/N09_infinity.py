# expect: reject
# caught by: incorrect_numerical.tolerance
# workload: st_matmul
"""Returns infinity everywhere."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(a, b):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    for row in nl.affine_range(2):
        nl.store(
            out[128 * row + p, f], value=nl.full((nl.par_dim(128), 512), float("inf"), dtype=nl.float32, buffer=nl.sbuf)
        )
    return out
