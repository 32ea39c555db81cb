"""Product of lhs_t (K, M) and rhs (K, N): one tile of each operand is loaded for every step of the reduction."""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(lhs_t, rhs):
    depth, rows = lhs_t.shape
    _, columns = rhs.shape
    out = nl.ndarray((rows, columns), dtype=lhs_t.dtype, buffer=nl.shared_hbm)
    for m in nl.affine_range(rows // 128):
        for n in nl.affine_range(columns // 512):
            total = nl.zeros((128, 512), nl.float32, buffer=nl.psum)
            for k in nl.affine_range(depth // 128):
                left = nl.load(lhs_t[k * 128 : (k + 1) * 128, m * 128 : (m + 1) * 128])
                right = nl.load(rhs[k * 128 : (k + 1) * 128, n * 512 : (n + 1) * 512])
                total += nl.matmul(left, right, transpose_x=True)
            done = nl.copy(total, dtype=out.dtype)
            nl.store(out[m * 128 : (m + 1) * 128, n * 512 : (n + 1) * 512], value=done)
    return out
