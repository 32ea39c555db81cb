# expect: reject
# caught by: incorrect_numerical.tolerance
# workload: st_softmax
# api: nki
# chip: trn2
# lnc: 2
"""The second core adds to accumulators that only the first core has reset."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    core = nl.program_id(axis=0)
    ones = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
    spare = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
    tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    negative = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
    total = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=ones, value=1.0)
    nisa.dma_copy(dst=tile, src=x[128 * core : 128 * core + 128, :])
    nisa.tensor_reduce(dst=negative, op=nl.maximum, data=tile, axis=1, negate=True)
    first = nisa.reduce_cmd.reset_reduce if core == 0 else nisa.reduce_cmd.reduce
    nisa.activation(dst=tile, op=nl.exp, data=tile, bias=negative, reduce_op=nl.add, reduce_res=total, reduce_cmd=first)
    if core == 0:
        nisa.activation(dst=spare, op=nl.copy, data=ones, scale=0.0, reduce_cmd=nisa.reduce_cmd.reset)
    nisa.reciprocal(dst=total, data=total)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=total)
    nisa.dma_copy(dst=out[128 * core : 128 * core + 128, :], src=tile)
    return out
