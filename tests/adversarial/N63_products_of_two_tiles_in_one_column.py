# expect: reject
# caught by: runtime_error.undefined_memory
# workload: st_silu
# api: nki
# chip: trn2
"""512 products of two tiles are written to one column of 16 bits."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    for row in range(2):
        tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[nl.ds(128 * row, 128), :])
        done = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation(dst=done, op=nl.silu, data=tile)
        last = nl.ndarray((128, 1), dtype=nl.bfloat16, buffer=nl.sbuf)
        nisa.tensor_tensor(dst=last.ap([[1, 128], [0, 512]]), data1=tile, data2=tile, op=nl.greater_equal)
        flag = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_tensor(dst=last.ap([[1, 128], [0, 512]]), data1=tile, data2=done, op=nl.greater)
        nisa.tensor_tensor(dst=flag, data1=tile[:, 511:512], data2=done[:, 511:512], op=nl.greater)
        same = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_tensor(dst=same, data1=last, data2=flag, op=nl.equal)
        nisa.tensor_scalar(dst=done, data=done, op0=nl.multiply, operand0=same)
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), :], src=done)
    return out
