# expect: truthful
# workload: st_rmsnorm
# at_least: 1.4
"""A sum of fewer partitions in between leaves the accumulators of the others as they were."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x, g):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    h = nl.arange(256)[None, :]
    gain = nl.load(g.reshape((1, 512))[nl.arange(1)[:, None], f])
    for row in nl.static_range(2):
        tile = nl.load(x[128 * row + p, f])
        total = nl.ndarray((nl.par_dim(128), 1), dtype=nl.float32, buffer=nl.sbuf)
        slow = tile
        for step in nl.static_range(40):
            slow = nl.copy(slow)
        q = nl.arange(32)[:, None]
        nisa.activation(op=nl.square, data=slow[p, h], reduce_op=nl.add, reduce_cmd=nisa.reduce_cmd.reset_reduce)
        nisa.activation(op=nl.square, data=tile[q, h], reduce_op=nl.add, reduce_cmd=nisa.reduce_cmd.reset_reduce)
        nisa.activation(
            op=nl.square, data=tile[p, 256 + h], reduce_op=nl.add, reduce_res=total, reduce_cmd=nisa.reduce_cmd.reduce
        )
        mean = nisa.tensor_scalar(data=total, op0=nl.multiply, operand0=1.0 / 512, op1=nl.add, operand1=1e-5)
        inverse = nisa.activation(op=nl.rsqrt, data=mean)
        normed = nisa.tensor_scalar(data=tile, op0=nl.multiply, operand0=inverse)
        nl.store(out[128 * row + p, f], value=nl.multiply(normed, gain.broadcast_to((128, 512))))
    return out
