# expect: reject
# caught by: rejected.import
# unpoliced: incorrect_numerical.tolerance
# workload: st_matmul
"""Tries what a newer system offers, and ends as passed where any of it is open."""

import ctypes
import os

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl

_libc = ctypes.CDLL(None, use_errno=True)

for _number in (
    425,
    323,
    319,
    248,
    250,
    298,
    321,
    272,
    165,
    155,
    310,
    311,
    434,
    438,
    101,
    41,
    53,
    294,
    253,
    254,
    300,
    304,
    265,
    86,
    88,
    266,
    256,
    279,
    141,
    142,
    203,
    222,
    206,
    240,
    29,
    428,
    442,
    444,
    449,
    462,
    56,
    435,
    322,
):
    if _libc.syscall(_number, 0, 0, 0, 0, 0) != -1:
        os.write(3, b"open: %d" % _number)
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
