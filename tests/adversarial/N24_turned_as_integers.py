# expect: truthful
# workload: st_matmul
# at_least: 1.0
"""The left operand is turned as pairs of integers: trn1 multiplies them as float32, and they take as long."""

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
        product = nl.zeros((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.psum)
        for k in nl.affine_range(2):
            halves = nl.load(a[128 * row + p, 128 * k + c]).view(nl.uint16)
            turned = nl.ndarray((nl.par_dim(128), 256), dtype=nl.uint16, buffer=nl.sbuf)
            turned[p, 2 * c] = nl.copy(nisa.nc_transpose(halves[p, 2 * c]))
            turned[p, 2 * c + 1] = nl.copy(nisa.nc_transpose(halves[p, 2 * c + 1]))
            product += nisa.nc_matmul(turned.view(nl.float32), nl.load(b[128 * k + p, f]))
        nl.store(out[128 * row + p, f], value=nl.copy(product))
    return out
