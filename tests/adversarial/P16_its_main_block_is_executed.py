# expect: policy
# caught by: rejected.dunder
# unpoliced: compile_error.monkeypatch
# workload: st_silu
"""A capture pattern binds __name__, so that a block that no check reads is executed."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl

match "__main__":
    case __name__:
        pass


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    for row in nl.affine_range(2):
        tile = nl.load(x[128 * row + p, f])
        nl.store(out[128 * row + p, f], value=nisa.activation(op=nl.silu, data=tile))
    return out


if __name__ == "__main__":
    import sys

    sys.modules[nki.__name__].jit = None
