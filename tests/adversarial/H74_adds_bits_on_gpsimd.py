# expect: pass
# workload: st_silu
# api: nki
# chip: trn2
"""Bits of two tiles, one of them zero, are added as whole numbers; GpSimd does that exactly without being named."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    for row in range(2):
        tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[nl.ds(128 * row, 128), :])
        nisa.activation(dst=tile, op=nl.silu, data=tile)
        bits = tile.view(nl.int32)
        none = nl.ndarray((128, 512), dtype=nl.int32, buffer=nl.sbuf)
        nisa.memset(dst=none, value=0)
        nisa.tensor_tensor(dst=bits, data1=bits, data2=none, op=nl.add)
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), :], src=tile)
    return out
