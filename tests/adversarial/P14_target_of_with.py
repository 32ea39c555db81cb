# expect: policy
# caught by: rejected.dunder
# unpoliced: compile_error.monkeypatch
# workload: st_silu
"""A function of the API is replaced by the target of a with statement."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl

original = nisa.activation


class Other:
    def __enter__(self):
        return lambda op, data: original(op=nl.silu, data=data)

    def __exit__(self, *failure):
        return None


with Other() as nisa.activation:
    pass


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    for row in nl.affine_range(2):
        tile = nl.load(x[128 * row + p, f])
        done = nisa.activation(op=nl.tanh, data=tile)
        nl.store(out[128 * row + p, f], value=done)
    return out
