# expect: reject
# caught by: rejected.dunder
# unpoliced: compile_error.audit
# workload: st_silu
"""Code put together from other code."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


def tanh(tile):
    return nisa.activation(op=nl.tanh, data=tile)


names = tuple("silu" if name == "tanh" else name for name in tanh.__code__.co_names)
silu = type(tanh)(tanh.__code__.replace(co_names=names), globals())


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    for row in nl.affine_range(2):
        tile = nl.load(x[128 * row + p, f])
        nl.store(out[128 * row + p, f], value=silu(tile))
    return out
