"""Blocks in all three dimensions: 2048 rows x 1024 columns x 1024 deep, partial sums kept in SBUF."""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(lhs_t, rhs):
    depth, rows = lhs_t.shape
    _, columns = rhs.shape
    block_m, block_n, block_k = 16, 2, 8
    out = nl.ndarray((rows, columns), dtype=lhs_t.dtype, buffer=nl.shared_hbm)
    i_p = nl.arange(128)[:, None]
    i_m = nl.arange(block_m * 128)[None, :]
    i_n = nl.arange(block_n * 512)[None, :]
    j_m = nl.arange(128)[None, :]
    j_n = nl.arange(512)[None, :]
    for n in nl.affine_range(columns // (512 * block_n)):
        for m in nl.affine_range(rows // (128 * block_m)):
            sums = nl.zeros((block_m, block_n, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
            for k in nl.sequential_range(depth // (128 * block_k)):
                right = nl.ndarray((block_k, nl.par_dim(128), block_n * 512), dtype=rhs.dtype, buffer=nl.sbuf)
                left = nl.ndarray((block_k, nl.par_dim(128), block_m * 128), dtype=lhs_t.dtype, buffer=nl.sbuf)
                for bk in nl.affine_range(block_k):
                    start = (k * block_k + bk) * 128
                    right[bk, i_p, i_n] = nl.load(rhs[start + i_p, n * block_n * 512 + i_n])
                    left[bk, i_p, i_m] = nl.load(lhs_t[start + i_p, m * block_m * 128 + i_m])
                for bm in nl.affine_range(block_m):
                    for bn in nl.affine_range(block_n):
                        part = nl.zeros((128, 512), nl.float32, buffer=nl.psum)
                        for bk in nl.affine_range(block_k):
                            part += nl.matmul(
                                left[bk, i_p, bm * 128 + j_m], right[bk, i_p, bn * 512 + j_n], transpose_x=True
                            )
                        sums[bm, bn, i_p, j_n] += part[i_p, j_n]
            for bm in nl.affine_range(block_m):
                row = nl.ndarray((nl.par_dim(128), block_n * 512), dtype=out.dtype, buffer=nl.sbuf)
                for bn in nl.affine_range(block_n):
                    row[i_p, bn * 512 + j_n] = nl.copy(sums[bm, bn, i_p, j_n], dtype=out.dtype)
                nl.store(out[(m * block_m + bm) * 128 + i_p, n * block_n * 512 + i_n], value=row)
    return out
