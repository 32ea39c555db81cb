# expect: policy
# caught by: rejected.interpreter
# workload: st_silu
"""An array of texts takes the text of an object, and its letters as numbers decide which function is traced."""

import numpy as np

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl

texts = np.unique(["a" * 40, "b"], return_index=True)[0]
texts[0] = object()
letters = texts.view(np.uint32)


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    for row in nl.affine_range(2):
        tile = nl.load(x[128 * row + p, f])
        done = nisa.activation(op=nl.silu if letters[30] != 7 else nl.tanh, data=tile)
        nl.store(out[128 * row + p, f], value=done)
    return out
