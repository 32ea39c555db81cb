# expect: pass
# workload: st_softmax
# api: nki
# chip: trn2
"""Softmax in four pieces, with a running maximum and a running sum."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    for row in range(2):
        whole = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=whole, src=x[nl.ds(128 * row, 128), :])
        most = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
        total = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=most, value=-3.0e38)
        nisa.memset(dst=total, value=0.0)
        for piece in nl.sequential_range(4):
            part = whole[:, nl.ds(128 * piece, 128)]
            found = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
            after = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
            scale = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
            negative = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
            sums = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
            power = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_reduce(dst=found, op=nl.maximum, data=part, axis=1)
            nisa.tensor_tensor(dst=after, data1=found, data2=most, op=nl.maximum)
            nisa.tensor_scalar(dst=negative, data=after, op0=nl.multiply, operand0=-1.0)
            nisa.activation(dst=scale, op=nl.exp, data=most, bias=negative)
            nisa.activation_reduce(dst=power, op=nl.exp, data=part, bias=negative, reduce_op=nl.add, reduce_res=sums)
            nisa.scalar_tensor_tensor(dst=total, data=total, op0=nl.multiply, operand0=scale, op1=nl.add, operand1=sums)
            nisa.tensor_copy(dst=most, src=after)
        nisa.tensor_scalar(dst=most, data=most, op0=nl.multiply, operand0=-1.0)
        nisa.reciprocal(dst=total, data=total)
        nisa.activation(dst=whole, op=nl.exp, data=whole, bias=most)
        nisa.tensor_scalar(dst=whole, data=whole, op0=nl.multiply, operand0=total)
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), :], src=whole)
    return out
