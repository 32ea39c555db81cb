"""Blocks of 2 x 2 output tiles: rows and columns are loaded once for each block and used for four products."""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(lhs_t, rhs):
    depth, rows = lhs_t.shape
    _, columns = rhs.shape
    steps, block_m, block_n = depth // 128, 2, 2
    out = nl.ndarray((rows, columns), dtype=lhs_t.dtype, buffer=nl.shared_hbm)
    i_p = nl.arange(128)[:, None]
    i_m = nl.arange(block_m * 128)[None, :]
    i_n = nl.arange(block_n * 512)[None, :]
    j_m = nl.arange(128)[None, :]
    j_n = nl.arange(512)[None, :]
    for m in nl.affine_range(rows // (128 * block_m)):
        left = nl.ndarray((steps, nl.par_dim(128), block_m * 128), dtype=lhs_t.dtype, buffer=nl.sbuf)
        for k in nl.affine_range(steps):
            left[k, i_p, i_m] = nl.load(lhs_t[k * 128 + i_p, m * block_m * 128 + i_m])
        for n in nl.affine_range(columns // (512 * block_n)):
            right = nl.ndarray((steps, nl.par_dim(128), block_n * 512), dtype=rhs.dtype, buffer=nl.sbuf)
            for k in nl.affine_range(steps):
                right[k, i_p, i_n] = nl.load(rhs[k * 128 + i_p, n * block_n * 512 + i_n])
            for bm in nl.affine_range(block_m):
                for bn in nl.affine_range(block_n):
                    total = nl.zeros((128, 512), nl.float32, buffer=nl.psum)
                    for k in nl.affine_range(steps):
                        total += nl.matmul(
                            left[k, i_p, bm * 128 + j_m], right[k, i_p, bn * 512 + j_n], transpose_x=True
                        )
                    done = nl.copy(total, dtype=out.dtype)
                    nl.store(
                        out[(m * block_m + bm) * 128 + i_p, (n * block_n + bn) * 512 + j_n],
                        value=done,
                    )
    return out
