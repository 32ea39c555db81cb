# expect: reject
# caught by: rejected.import
# unpoliced: compile_error.crash
# workload: st_matmul
"""Replaces the tracer's functions in its own process."""

import sys

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl

for _name, _module in list(sys.modules.items()):
    if _name.startswith("acceld.evaluate"):
        for _attribute in ("send", "encode", "failure_record"):
            if hasattr(_module, _attribute):
                setattr(_module, _attribute, lambda *args, **kwargs: b"")


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
