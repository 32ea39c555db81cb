# expect: reject
# caught by: compile_error.access_pattern
# workload: st_silu
# api: nki
# chip: trn2
"""View two tiles of one shape with another dtype: the elements of the second tile are not contiguous."""

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
        one = tile[:, 0:256].view(nl.bfloat16)
        two = tile[:, 0:512:2].view(nl.bfloat16)
        a = nl.ndarray((128, 512), dtype=nl.bfloat16, buffer=nl.sbuf)
        nisa.tensor_copy(dst=a, src=one)
        b = nl.ndarray((128, 512), dtype=nl.bfloat16, buffer=nl.sbuf)
        nisa.tensor_copy(dst=b, src=two)
        nisa.tensor_tensor(dst=b, data1=a, data2=b, op=nl.multiply)
        nisa.tensor_scalar(dst=b, data=b, op0=nl.multiply, operand0=0.0)
        nisa.tensor_tensor(dst=done, data1=done, data2=b, op=nl.add)
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), :], src=done)
    return out
