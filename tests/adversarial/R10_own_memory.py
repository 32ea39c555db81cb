# expect: reject
# caught by: rejected.try
# unpoliced: incorrect_numerical.tolerance
# workload: st_matmul
"""Reads its own memory for secrets."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl

try:
    with open("/proc/self/mem", "rb") as _memory, open("/proc/self/maps") as _maps:
        for _line in _maps:
            _start = int(_line.split("-")[0], 16)
            _memory.seek(_start)
            _memory.read(4096)
except (OSError, ValueError):
    pass


@nki.jit
def kernel(a, b):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    for row in nl.affine_range(2):
        nl.store(out[128 * row + p, f], value=nl.zeros((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf))
    return out
