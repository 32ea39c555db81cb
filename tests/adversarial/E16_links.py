# expect: reject
# caught by: rejected.import
# unpoliced: incorrect_numerical.tolerance
# workload: st_matmul
"""Fills its folder with links to what it may not read, and files without substance."""

import os

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl

for _target in ("/etc/passwd", "/proc/self/mem", "/dev/mem", "/root", "."):
    try:
        os.symlink(_target, "/tmp/link" + _target.replace("/", "_"))
        os.link(_target, "/tmp/hard" + _target.replace("/", "_"))
        open("/tmp/link" + _target.replace("/", "_")).read()
    except OSError:
        pass
for _number in range(10000):
    try:
        with open(f"/tmp/file{_number}", "wb") as _file:
            _file.truncate(1 << 40)
            _file.seek(1 << 39)
            _file.write(b"x")
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
