# expect: reject
# caught by: rejected.import
# unpoliced: compile_error.crash
# workload: st_matmul
"""Writes a result and exits at once with success."""

import json
import os

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl

for _path in ("result.json", "/tmp/result.json", "/tmp/evaluation.json"):
    try:
        with open(_path, "w") as _file:
            json.dump({"status": "passed", "correct": 1, "latency_us": 1.0}, _file)
    except OSError:
        pass
os._exit(0)


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
