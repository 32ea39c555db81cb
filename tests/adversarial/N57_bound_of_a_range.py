# expect: reject
# caught by: runtime_error.undefined_memory
# workload: st_silu
# api: nki
# chip: trn2
"""A bound that was never written decides a range that is never reached with other contents."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    for row in range(2):
        tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        done = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[nl.ds(128 * row, 128), :])
        nisa.activation(dst=done, op=nl.silu, data=tile)
        bound = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
        top = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
        most = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
        picked = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=bound[0:64, :], value=-3.0)
        nisa.memset(dst=top, value=1000.0)
        nisa.range_select(
            dst=picked,
            on_true_tile=done,
            comp_op0=nl.equal,
            comp_op1=nl.less,
            bound0=bound,
            bound1=top,
            reduce_cmd=nisa.reduce_cmd.reset_reduce,
            reduce_res=most,
            reduce_op=nl.maximum,
            range_start=0.0,
            on_false_value=nl.fp32.min,
        )
        nisa.tensor_scalar(dst=most, data=most, op0=nl.maximum, operand0=-1000.0, op1=nl.add, operand1=1000.0)
        nisa.tensor_scalar(dst=done, data=done, op0=nl.add, operand0=most)
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), :], src=done)
    return out
