# expect: pass
# workload: st_silu_current
# api: nki
# chip: trn2
"""A mask of positions in int32 with padding that nobody wrote keeps every column."""

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
        mask = nl.ndarray((128, 640), dtype=nl.int32, buffer=nl.sbuf)
        nisa.iota(dst=mask[:, 0:512], pattern=[[1, 512]], offset=0, channel_multiplier=0)
        kept = nl.ndarray((128, 640), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=kept[:, 0:512], data=mask[:, 0:512], op0=nl.less, operand0=512.0)
        nisa.activation(dst=done, op=nl.silu, data=tile)
        nisa.tensor_tensor(dst=done, data1=done, data2=kept[:, 0:512], op=nl.multiply)
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), :], src=done)
    return out
