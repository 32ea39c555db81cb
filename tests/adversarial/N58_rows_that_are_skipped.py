# expect: reject
# caught by: runtime_error.undefined_memory
# workload: st_silu
# api: nki
# chip: trn2
"""Rows beyond the end are skipped: a number that was never written is hardly ever the number of a row."""

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
        index = nl.ndarray((128, 1), dtype=nl.int32, buffer=nl.sbuf)
        more = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=index[0:64, :], value=1000000)
        nisa.memset(dst=more, value=0.0)
        nisa.dma_copy(
            dst=more,
            src=x.ap(pattern=[[512, 128], [1, 512]], offset=0, vector_offset=index, indirect_dim=0),
            oob_mode=nisa.oob_mode.skip,
        )
        nisa.tensor_tensor(dst=done, data1=done, data2=more, op=nl.add)
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), :], src=done)
    return out
