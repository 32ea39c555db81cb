# expect: reject
# caught by: rejected.import
# unpoliced: rejected.forged_program
# workload: st_matmul
"""Swaps the code object of functions in the simulator."""

import acceld.nki.ir.codec as codec

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl

codec.encode.__code__ = (lambda program: b"{}").__code__
codec.decode.__code__ = (lambda data: None).__code__


@nki.jit
def kernel(a, b):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    c = nl.arange(128)[None, :]
    f = nl.arange(512)[None, :]
    for row in nl.affine_range(2):
        left = nl.load(a[128 * row + p, c])
        right = nl.load(b[p, f])
        nl.store(out[128 * row + p, f], value=nl.copy(nl.matmul(left, right)))
    return out
