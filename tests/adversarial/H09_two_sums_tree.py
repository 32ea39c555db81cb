# expect: pass
# workload: st_matmul
"""Adds four partial products pairwise."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(a, b):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    c = nl.arange(128)[None, :]
    f = nl.arange(512)[None, :]
    h = nl.arange(64)[:, None]
    n = nl.arange(64)[None, :]
    for row in nl.affine_range(2):
        first = nl.copy(nl.matmul(nl.load(a[128 * row + p, n]), nl.load(b[h, f])))
        second = nl.copy(nl.matmul(nl.load(a[128 * row + p, 64 + n]), nl.load(b[64 + h, f])))
        third = nl.copy(nl.matmul(nl.load(a[128 * row + p, 128 + n]), nl.load(b[128 + h, f])))
        fourth = nl.copy(nl.matmul(nl.load(a[128 * row + p, 192 + n]), nl.load(b[192 + h, f])))
        nl.store(out[128 * row + p, f], value=nl.add(nl.add(first, second), nl.add(third, fourth)))
    return out
