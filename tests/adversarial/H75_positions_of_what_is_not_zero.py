# expect: pass
# workload: st_silu_current
# api: nki
# chip: trn2
"""Only each sixteenth row is searched; the other rows are never written."""

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
        flags = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
        places = nl.ndarray((128, 129), dtype=nl.int32, buffer=nl.sbuf)
        nisa.memset(dst=flags[0:1, :], value=1.0)
        nisa.nonzero_with_count(dst=places, src=flags, index_offset=0, padding_val=-1)
        count = nl.ndarray((1, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=count, data=places[0:1, 128:129], op0=nl.multiply, operand0=0.0078125)
        ones = nl.ndarray((1, 128), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=ones, value=1.0)
        wide = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(dst=wide, stationary=ones, moving=count)
        factor = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(dst=factor, src=wide)
        nisa.activation(dst=done, op=nl.silu, data=tile)
        nisa.tensor_scalar(dst=done, data=done, op0=nl.multiply, operand0=factor)
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), :], src=done)
    return out
