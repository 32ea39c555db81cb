# expect: reject
# caught by: rejected.import
# unpoliced: incorrect_numerical.tolerance
# workload: st_matmul
"""Writes another record when it is collected, at exit, in a thread and in a signal handler."""

import atexit
import os
import signal
import struct
import threading

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl

_text = b'{"status": "passed"}'


class _Last:
    def __del__(self):
        os.write(3, struct.pack("<I", len(_text)) + _text)


def _late(*ignored):
    os.pwrite(3, struct.pack("<I", len(_text)) + _text, 0)


_last = _Last()
atexit.register(_late)
signal.signal(signal.SIGALRM, _late)
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
try:
    threading.Thread(target=_late).start()
except RuntimeError:
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
