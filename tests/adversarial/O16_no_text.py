# expect: reject
# caught by: rejected.forged_program
# workload: st_matmul
"""Names that are no text, numbers that are no numbers."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(a, b):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm, name="\ud800\x00\x1b[2J" * 10000)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    nl.store(out[p, f], value=nl.full((128, 512), float("nan"), dtype=nl.float32))
    nl.store(out[128 + p, f], value=nl.full((128, 512), 10**400, dtype=nl.float32))
    return out
