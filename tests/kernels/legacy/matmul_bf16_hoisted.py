"""As the tiled product, but all tiles of one block row of lhs_t are loaded before the loop over columns."""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(lhs_t, rhs):
    depth, rows = lhs_t.shape
    _, columns = rhs.shape
    steps = depth // 128
    out = nl.ndarray((rows, columns), dtype=lhs_t.dtype, buffer=nl.shared_hbm)
    i_p = nl.arange(128)[:, None]
    i_m = nl.arange(128)[None, :]
    for m in nl.affine_range(rows // 128):
        left = nl.ndarray((steps, nl.par_dim(128), 128), dtype=lhs_t.dtype, buffer=nl.sbuf)
        for k in nl.affine_range(steps):
            left[k, i_p, i_m] = nl.load(lhs_t[k * 128 + i_p, m * 128 + i_m])
        for n in nl.affine_range(columns // 512):
            total = nl.zeros((128, 512), nl.float32, buffer=nl.psum)
            for k in nl.affine_range(steps):
                right = nl.load(rhs[k * 128 : (k + 1) * 128, n * 512 : (n + 1) * 512])
                total += nl.matmul(left[k, i_p, i_m], right, transpose_x=True)
            done = nl.copy(total, dtype=out.dtype)
            nl.store(out[m * 128 : (m + 1) * 128, n * 512 : (n + 1) * 512], value=done)
    return out
