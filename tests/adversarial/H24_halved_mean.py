# expect: pass
# workload: st_layernorm
"""Layer normalization with sums of halves and a fused subtract and multiply."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    h = nl.arange(256)[None, :]
    tile = nl.load(x[p, f])
    first = nisa.tensor_reduce(nl.add, data=tile[p, h], axis=[1])
    second = nisa.tensor_reduce(nl.add, data=tile[p, 256 + h], axis=[1])
    mean = nl.multiply(nl.add(first, second), 1.0 / 512)
    centered = nisa.tensor_scalar(data=tile, op0=nl.subtract, operand0=mean)
    variance = nl.multiply(nl.sum(nl.square(centered), axis=[1]), 1.0 / 512)
    inverse = nl.rsqrt(nl.add(variance, 1e-5))
    nl.store(
        out[p, f],
        value=nisa.tensor_scalar(data=tile, op0=nl.subtract, operand0=mean, op1=nl.multiply, operand1=inverse),
    )
    return out
