# expect: reject
# caught by: timeout.trace_deadline
# workload: st_matmul
"""Unrolls a million instructions."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(a, b):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    one = nl.arange(1)[:, None]
    f = nl.arange(512)[None, :]
    for i in range(100000000):
        nl.store(out[(i * 7919) % 256 + one, f], value=nl.load(b[(i * 104729) % 256 + one, f]))
    return out
