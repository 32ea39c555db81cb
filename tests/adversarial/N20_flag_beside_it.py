# expect: reject
# caught by: runtime_error.transpose_identity
# workload: st_matmul
"""One product of two is marked as a transpose, the other not."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(a, b):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    c = nl.arange(128)[None, :]
    f = nl.arange(512)[None, :]
    for row in nl.affine_range(2):
        total = nl.zeros((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
        for k in nl.static_range(2):
            left = nl.copy(nisa.nc_transpose(nl.load(a[128 * row + p, 128 * k + c])))
            total[p, f] += nl.copy(nisa.nc_matmul(left, nl.load(b[128 * k + p, f]), is_transpose=k == 0))
        nl.store(out[128 * row + p, f], value=total)
    return out
