# expect: reject
# caught by: compile_error.access_pattern
# workload: st_silu
# api: nki
# chip: trn2
"""Make views with another dtype in a loop: only the first view has contiguous elements."""

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
        one = nl.ndarray((128, 256), dtype=nl.uint32, buffer=nl.sbuf)
        two = nl.ndarray((128, 256), dtype=nl.uint32, buffer=nl.sbuf)
        for step in (1, 2):
            nisa.tensor_copy(dst=two, src=tile[:, 0 : 128 * step : step].view(nl.uint16)[:, 0:256])
        nisa.tensor_scalar(dst=two, data=two, op0=nl.bitwise_and, operand0=0)
        zero = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(dst=zero, src=two)
        nisa.tensor_tensor(dst=done[:, 0:256], data1=done[:, 0:256], data2=zero, op=nl.add)
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), :], src=done)
    return out
