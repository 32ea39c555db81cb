# expect: reject
# caught by: rejected.builtin
# unpoliced: compile_error.audit
# workload: st_silu
"""Code from text, which the source does not show."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl

code = compile("def act(tile): return nisa.activation(op=nl.silu, data=tile)", "<text>", "exec")
space = {"nisa": nisa, "nl": nl}
exec(code, space)


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    for row in nl.affine_range(2):
        tile = nl.load(x[128 * row + p, f])
        nl.store(out[128 * row + p, f], value=space["act"](tile))
    return out
