# expect: reject
# caught by: rejected.import
# unpoliced: incorrect_numerical.tolerance
# workload: st_matmul
"""Puts its own neuron-profile before the real one."""

import os

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl

os.environ["PATH"] = "/tmp:" + os.environ.get("PATH", "")
os.system = lambda command: 0
try:
    with open("/tmp/neuron-profile", "w") as _file:
        _file.write("#!/bin/sh\necho total_time 0.001")
    os.chmod("/tmp/neuron-profile", 0o755)
except OSError:
    pass


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
