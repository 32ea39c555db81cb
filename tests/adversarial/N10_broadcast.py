# expect: reject
# caught by: incorrect_shape.output_shape
# workload: st_matmul
"""Returns one row, hoping that it is broadcast."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(a, b):
    out = nl.ndarray((1, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    one = nl.arange(1)[:, None]
    f = nl.arange(512)[None, :]
    nl.store(out[one, f], value=nl.load(b[one, f]))
    return out
