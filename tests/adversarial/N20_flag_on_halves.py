# expect: reject
# caught by: runtime_error.transpose_identity
# workload: st_matmul
"""Products over half of the rows are marked as transposes."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(a, b):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    c = nl.arange(128)[None, :]
    f = nl.arange(512)[None, :]
    h = nl.arange(64)[:, None]
    for row in nl.affine_range(2):
        total = nl.zeros((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
        for k in nl.sequential_range(4):
            left = nl.load_transpose2d(a[128 * row + p, 64 * k + nl.arange(64)[None, :]])
            total[p, f] += nl.copy(nisa.nc_matmul(left, nl.load(b[64 * k + h, f]), is_transpose=True))
        nl.store(out[128 * row + p, f], value=total)
    return out
