# expect: pass
# workload: st_softmax
"""The maximum is the first of the eight greatest, and the weights of each half are summed as they are made."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    for row in nl.affine_range(2):
        tile = nl.load(x[128 * row + p, f])
        greatest = nisa.max8(src=tile)
        negative = nl.multiply(greatest[:, 0:1], -1.0)
        weight = nl.ndarray((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
        sums = nl.ndarray((nl.par_dim(128), 2), dtype=nl.float32, buffer=nl.sbuf)
        for half in nl.static_range(2):
            part = nl.ds(256 * half, 256)
            weight[:, part] = nisa.activation_reduce(
                op=nl.exp, data=tile[:, part], bias=negative, reduce_op=nl.add, reduce_res=sums[:, nl.ds(half, 1)]
            )
        inverse = nisa.reciprocal(data=nl.add(sums[:, 0:1], sums[:, 1:2]))
        nl.store(out[128 * row + p, f], value=nisa.tensor_scalar(data=weight, op0=nl.multiply, operand0=inverse))
    return out
