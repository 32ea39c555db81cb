# expect: pass
# workload: st_softmax
# api: nki
# chip: trn2
"""A range that holds every column is selected, and gives the maximum too."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    for row in range(2):
        tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        low = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
        high = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
        most = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
        total = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
        kept = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=low, value=0.0)
        nisa.memset(dst=high, value=512.0)
        nisa.dma_copy(dst=tile, src=x[nl.ds(128 * row, 128), :])
        nisa.range_select(
            dst=kept,
            on_true_tile=tile,
            comp_op0=nl.greater_equal,
            comp_op1=nl.less,
            bound0=low,
            bound1=high,
            reduce_cmd=nisa.reduce_cmd.reset_reduce,
            reduce_res=most,
            reduce_op=nl.maximum,
            range_start=0.0,
            on_false_value=nl.fp32.min,
        )
        nisa.tensor_scalar(dst=most, data=most, op0=nl.multiply, operand0=-1.0)
        nisa.activation_reduce(dst=kept, op=nl.exp, data=kept, bias=most, reduce_op=nl.add, reduce_res=total)
        nisa.reciprocal(dst=total, data=total)
        nisa.tensor_scalar(dst=kept, data=kept, op0=nl.multiply, operand0=total)
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), :], src=kept)
    return out
