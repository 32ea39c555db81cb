# expect: policy
# caught by: rejected.try
# workload: st_matmul
"""Falls back to another kernel when its own fails."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


def honest(a, b):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    c = nl.arange(128)[None, :]
    f = nl.arange(512)[None, :]
    for row in nl.affine_range(2):
        product = nl.zeros((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.psum)
        for k in nl.affine_range(2):
            product += nl.matmul(nl.load(a[128 * row + p, 128 * k + c]), nl.load(b[128 * k + p, f]))
        nl.store(out[128 * row + p, f], value=nl.copy(product))
    return out


@nki.jit
def kernel(a, b):
    try:
        raise ValueError("the fast path is not ready")
    except ValueError:
        return honest(a, b)
