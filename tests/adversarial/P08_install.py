# expect: reject
# caught by: rejected.import
# unpoliced: incorrect_numerical.tolerance
# workload: st_matmul
"""Installs a package and asks the network."""

import socket
import subprocess
import sys

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl

try:
    subprocess.run([sys.executable, "-m", "pip", "install", "fast-op"], timeout=5)
except Exception:
    pass
try:
    socket.create_connection(("1.1.1.1", 443), timeout=2)
    raise SystemExit("reached the network")
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
