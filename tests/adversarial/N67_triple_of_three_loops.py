# expect: reject
# caught by: runtime_error.affine_order
# workload: st_silu
"""Wrong only if one triple of iterations of three loops runs first, of 210 triples."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    for row in nl.static_range(2):
        tile = nl.load(x[128 * row + p, f])
        done = nisa.activation(op=nl.silu, data=tile)
        held = nl.ndarray((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
        held[p, f] = nisa.memset((128, 512), 1.0, nl.float32)
        for i in nl.affine_range(5):
            for j in nl.affine_range(6):
                for k in nl.affine_range(7):
                    held[p, f] = nisa.tensor_copy(done, mask=(42 * i + 7 * j + k + 0 * p + 0 * f <= 100))
                    held[p, f] = nisa.tensor_copy(done, mask=(42 * i + 7 * j + k + 0 * p + 0 * f >= 102))
                    nl.store(
                        out[128 * row + p, f],
                        value=held[p, f],
                        mask=(42 * i + 7 * j + k + 0 * p + 0 * f >= 101) & (42 * i + 7 * j + k + 0 * p + 0 * f <= 101),
                    )
    return out
