# expect: reject
# caught by: rejected.import
# unpoliced: incorrect_numerical.tolerance
# workload: st_matmul
"""Sockets without names in the file system, and descriptors sent over them."""

import os
import socket

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl

for _family in (socket.AF_UNIX, socket.AF_INET, 16, 40):
    try:
        _ours, _theirs = socket.socketpair()
        socket.send_fds(_ours, [b"x"], [3])
        socket.socket(_family).connect("\0acceld")
        os.write(3, b"open")
        os._exit(0)
    except (OSError, AttributeError, TypeError):
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
