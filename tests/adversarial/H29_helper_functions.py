# expect: pass
# workload: st_matmul
"""A kernel in several functions, with constants and a docstring."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


TILE = 128
COLUMNS = 512


def _rows(number):
    """Row indices of one tile."""
    return TILE * number + nl.arange(TILE)[:, None]


def _inner(number):
    return TILE * number + nl.arange(TILE)[None, :]


@nki.jit
def kernel(a, b):
    """a @ b; print() in a kernel does no harm."""
    print("tracing", a.shape, b.shape)
    out = nl.ndarray((256, COLUMNS), dtype=a.dtype, buffer=nl.shared_hbm)
    f = nl.arange(COLUMNS)[None, :]
    for row in nl.affine_range(a.shape[0] // TILE):
        product = nl.zeros((nl.par_dim(TILE), COLUMNS), dtype=nl.float32, buffer=nl.psum)
        for k in nl.affine_range(a.shape[1] // TILE):
            product += nl.matmul(nl.load(a[_rows(row), _inner(k)]), nl.load(b[_rows(k), f]))
        nl.store(out[_rows(row), f], value=nl.copy(product))
    return out
