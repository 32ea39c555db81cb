# expect: reject
# caught by: rejected.import
# unpoliced: compile_error.monkeypatch
# workload: st_matmul
"""Replaces functions of every loaded module that sound like a check."""

import sys

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl

for _module in list(sys.modules.values()):
    for _name in ("compare", "judge_errors", "check_errors", "verify", "tolerance_from", "check", "l2norm_allclose"):
        if hasattr(_module, _name):
            setattr(_module, _name, lambda *args, **kwargs: True)


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
