# expect: reject
# caught by: runtime_error.undefined_memory
# workload: st_silu
# api: nki
# chip: trn2
"""The number of a gathered column was never written, and is cut off."""

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
        index = nl.ndarray((128, 2), dtype=nl.uint16, buffer=nl.sbuf)
        ones = nl.ndarray((128, 2), dtype=nl.float32, buffer=nl.sbuf)
        flag = nl.ndarray((128, 16), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=index[:, 0:1], value=1)
        nisa.tensor_scalar(dst=index, data=index, op0=nl.minimum, operand0=1)
        nisa.memset(dst=ones[:, 0:1], value=0.0)
        nisa.memset(dst=ones[:, 1:2], value=1.0)
        nisa.local_gather(dst=flag, src_buffer=ones, index=index[:, 1:2], num_elem_per_idx=1, num_valid_indices=16)
        nisa.tensor_scalar(dst=done, data=done, op0=nl.multiply, operand0=flag[:, 7:8])
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), :], src=done)
    return out
