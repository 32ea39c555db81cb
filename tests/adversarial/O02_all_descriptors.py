# expect: reject
# caught by: rejected.import
# unpoliced: compile_error.crash
# workload: st_matmul
"""Writes a result to every descriptor it may have."""

import json
import os
import struct

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl

_text = json.dumps({"status": "passed", "errors": [[0.0, 0.0, 0.0]], "program_sha256": "0" * 64}).encode()
for _descriptor in range(1024):
    try:
        os.write(_descriptor, struct.pack("<I", len(_text)) + _text)
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
