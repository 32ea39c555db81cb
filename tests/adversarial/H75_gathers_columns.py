# expect: pass
# workload: st_silu_current
# api: nki
# chip: trn2
"""Columns are gathered in groups of partitions by whole numbers of 16 bits."""

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
        index = nl.ndarray((128, 32), dtype=nl.uint16, buffer=nl.sbuf)
        block = nl.ndarray((128, 32), dtype=nl.uint16, buffer=nl.sbuf)
        nisa.iota(dst=block, pattern=[[16, 32]], offset=0, channel_multiplier=0)
        nisa.iota(dst=index, pattern=[[0, 32]], offset=0, channel_multiplier=1)
        nisa.tensor_scalar(dst=index, data=index, op0=nl.bitwise_and, operand0=15)
        nisa.tensor_tensor(dst=index, data1=index, data2=block, op=nl.add)
        moved = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.local_gather(dst=moved, src_buffer=tile, index=index, num_elem_per_idx=1, num_valid_indices=512)
        nisa.activation(dst=done, op=nl.silu, data=moved)
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), :], src=done)
    return out
