# expect: truthful
# workload: st_rmsnorm
# at_least: 0.944
"""Reads the accumulator with an instruction on a zero: dearer than the fused sum, which takes 0.9441 of the baseline's sum on the vector engine."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x, g):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    gain = nl.load(g.reshape((1, 512))[nl.arange(1)[:, None], f])
    nothing = nl.zeros((nl.par_dim(128), 1), dtype=nl.float32, buffer=nl.sbuf)
    for row in nl.affine_range(2):
        tile = nl.load(x[128 * row + p, f])
        squares = nl.ndarray((nl.par_dim(128), 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation(op=nl.square, data=tile, reduce_op=nl.add, reduce_cmd=nisa.reduce_cmd.reset_reduce)
        nisa.activation(
            op=nl.square, data=nothing, reduce_op=nl.add, reduce_res=squares, reduce_cmd=nisa.reduce_cmd.reduce
        )
        mean = nisa.tensor_scalar(data=squares, op0=nl.multiply, operand0=1.0 / 512, op1=nl.add, operand1=1e-5)
        inverse = nisa.activation(op=nl.rsqrt, data=mean)
        normed = nisa.tensor_scalar(data=tile, op0=nl.multiply, operand0=inverse)
        nl.store(out[128 * row + p, f], value=nl.multiply(normed, gain.broadcast_to((128, 512))))
    return out
