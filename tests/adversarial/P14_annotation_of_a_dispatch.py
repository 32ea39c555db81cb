# expect: policy
# caught by: rejected.module
# unpoliced: compile_error.audit
# workload: st_silu
"""A function registered for dispatch has its annotation evaluated as code."""

import functools

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@functools.singledispatch
def choose(value):
    return value


@choose.register
def _(value: "[int, print('evaluated')][0]"):
    return value


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    for row in nl.affine_range(2):
        tile = nl.load(x[128 * row + p, f])
        done = nisa.activation(op=nl.silu, data=tile)
        nl.store(out[128 * row + p, f], value=done)
    return out
