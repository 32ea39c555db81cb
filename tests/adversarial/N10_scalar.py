# expect: reject
# caught by: incorrect_shape.output_shape
# workload: st_matmul
"""Returns a single element."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(a, b):
    out = nl.ndarray((1, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    one = nl.arange(1)[:, None]
    nl.store(out[one, nl.arange(1)[None, :]], value=nl.load(b[one, nl.arange(1)[None, :]]))
    return out
