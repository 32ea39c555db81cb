# expect: pass
# workload: st_rmsnorm
"""The gain on all partitions from a product with ones, the sum of squares from the scalar engine on the way."""

import numpy as np

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x, g):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    one = nl.arange(1)[:, None]
    column = nl.arange(1)[None, :]
    row_of_ones = nl.ones((1, 128), dtype=nl.float32, buffer=nl.sbuf)
    gain = nl.copy(nisa.nc_matmul(row_of_ones, nl.load(g.reshape((1, 512))[one, f])))
    for row in nl.affine_range(2):
        tile = nl.load(x[128 * row + p, f])
        total = nl.ndarray((nl.par_dim(128), 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation_reduce(op=nl.square, data=tile, reduce_op=np.add, reduce_res=total[p, column])
        mean = nisa.tensor_scalar(data=total, op0=nl.multiply, operand0=1.0 / 512, op1=nl.add, operand1=1e-5)
        inverse = nisa.reciprocal(data=nl.sqrt(mean))
        scaled = nl.multiply(tile, gain)
        nl.store(out[128 * row + p, f], value=nisa.tensor_scalar(data=scaled, op0=nl.multiply, operand0=inverse))
    return out
