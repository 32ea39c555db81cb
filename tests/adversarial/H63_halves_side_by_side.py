# expect: pass
# workload: st_silu
"""Both halves of two tiles, each half beside the one on its own partitions, along axes that are one run."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    P, A, B, C, D, E, G = nl.mgrid[0:64, 0:2, 0:2, 0:2, 0:2, 0:2, 0:16]
    walk = 256 * A + 128 * B + 64 * C + 32 * D + 16 * E + G
    for row in nl.affine_range(2):
        one = nl.load(x[128 * row + p, f])
        other = nisa.activation(op=nl.sigmoid, data=one)
        done = nl.ndarray((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
        for half in nl.affine_range(2):
            done[64 * half + P, walk] = nisa.tensor_tensor(
                one[64 * half + P, walk], other[64 * half + P, walk], op=nl.multiply
            )
        nl.store(out[128 * row + p, f], value=done[p, f])
    return out
