# expect: pass
# workload: st_matmul
"""Computes the transposed product, with the operands exchanged, and turns it at the end."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(a, b):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    c = nl.arange(128)[None, :]
    for row in nl.affine_range(2):
        left = nl.ndarray((2, nl.par_dim(128), 128), dtype=nl.float32, buffer=nl.sbuf)
        for k in nl.affine_range(2):
            left[k, p, c] = nl.copy(nisa.nc_transpose(nl.load(a[128 * row + p, 128 * k + c])))
        for column in nl.affine_range(4):
            turned = nl.zeros((nl.par_dim(128), 128), dtype=nl.float32, buffer=nl.psum)
            for k in nl.affine_range(2):
                turned += nisa.nc_matmul(nl.load(b[128 * k + p, 128 * column + c]), left[k, p, c])
            straight = nisa.nc_transpose(nl.copy(turned))
            nl.store(out[128 * row + p, 128 * column + c], value=nl.copy(straight))
    return out
