# expect: reject
# caught by: runtime_error.transpose_identity
# workload: st_matmul
"""Narrow products are marked as transposes."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(a, b):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    c = nl.arange(128)[None, :]
    f = nl.arange(512)[None, :]
    w = nl.arange(64)[None, :]
    for row in nl.affine_range(2):
        for column in nl.affine_range(8):
            total = nl.zeros((nl.par_dim(128), 64), dtype=nl.float32, buffer=nl.sbuf)
            for k in nl.sequential_range(2):
                left = nl.copy(nisa.nc_transpose(nl.load(a[128 * row + p, 128 * k + c])))
                right = nl.load(b[128 * k + p, 64 * column + w])
                total[p, w] += nl.copy(nisa.nc_matmul(left, right, is_transpose=True))
            nl.store(out[128 * row + p, 64 * column + w], value=total)
    return out
