# expect: reject
# caught by: rejected.import
# unpoliced: incorrect_numerical.tolerance
# workload: st_matmul
"""Reads the environment and arguments of other processes."""

import glob

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl

_found = b""
for _path in glob.glob("/proc/*/environ") + glob.glob("/proc/*/cmdline"):
    try:
        with open(_path, "rb") as _file:
            _found += _file.read()
    except OSError:
        pass
if b"SEED" in _found or b"API_KEY" in _found:
    raise SystemExit("found a secret")


@nki.jit
def kernel(a, b):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    for row in nl.affine_range(2):
        nl.store(out[128 * row + p, f], value=nl.zeros((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf))
    return out
