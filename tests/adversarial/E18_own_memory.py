# expect: reject
# caught by: rejected.import
# unpoliced: compile_error.crash
# workload: st_matmul
"""Writes to the memory of its own process through the file system, and rewrites the tracer."""

import sys

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl

for _name in (
    "/proc/self/mem",
    "/proc/thread-self/mem",
    "/proc/1/mem",
    "/proc/self/fd/3",
    "/dev/fd/3",
    "/dev/shm/x",
    "/dev/mem",
):
    try:
        with open(_name, "r+b", buffering=0) as _file:
            _file.write(b"x")
    except OSError:
        pass
for _module in list(sys.modules.values()):
    for _key in ("encode", "send", "verify", "trace"):
        if hasattr(_module, _key) and _module.__name__.startswith("acceld"):
            setattr(_module, _key, lambda *a, **k: b"")


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
