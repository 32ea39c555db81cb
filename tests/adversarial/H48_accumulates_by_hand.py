# expect: pass
# workload: st_matmul
"""Each product of the inner dimension has a bank of its own; a loop-carried sum adds them up from the last to the first."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(a, b):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    c = nl.arange(128)[None, :]
    f = nl.arange(512)[None, :]
    right = nl.ndarray((2, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
    for k in nl.affine_range(2):
        right[k, p, f] = nl.load(b[128 * k + p, f])
    for row in nl.sequential_range(2):
        total = nl.zeros((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
        for k in nl.sequential_range(2):
            left = nl.load(a[128 * row + p, 128 * (1 - k) + c])
            turned = nl.copy(nisa.nc_transpose(left))
            total[p, f] = nl.add(total, nisa.nc_matmul(turned, right[1 - k, p, f]))
        nl.store(out[128 * row + p, f], value=total)
    return out
