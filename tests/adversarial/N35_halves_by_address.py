# expect: reject
# caught by: compile_error.base_partition
# workload: st_silu
# api: nki
# chip: trn2
"""Two tiles are placed on different partitions by hand and multiplied."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    for row in range(4):
        one = nl.ndarray((64, 512), dtype=nl.float32, address=(0, 0))
        other = nl.ndarray((64, 512), dtype=nl.float32, address=(64, 4096))
        done = nl.ndarray((64, 512), dtype=nl.float32)
        nisa.dma_copy(dst=one, src=x[row * 64 : row * 64 + 64, :])
        nisa.activation(dst=other, op=nl.sigmoid, data=one)
        nisa.tensor_tensor(dst=done, data1=one, data2=other, op=nl.multiply)
        nisa.dma_copy(dst=out[row * 64 : row * 64 + 64, :], src=done)
    return out
