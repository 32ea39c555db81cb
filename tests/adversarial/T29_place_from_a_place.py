# expect: truthful
# workload: st_silu
# api: nki
# chip: trn2
"""Each of twenty transfers begins where the one before it says: a register is known only when its transfer has ended."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    zeros = nl.ndarray((64, 1), dtype=nl.int32, buffer=nl.sbuf)
    table = nl.ndarray((64, 1), dtype=nl.int32, buffer=nl.hbm)
    nisa.memset(dst=zeros, value=0)
    nisa.dma_copy(dst=table, src=zeros)
    at = zeros[0:1, :]
    for step in range(20):
        following = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
        place = nisa.register_alloc(at)
        nisa.dma_copy(dst=following, src=table.ap([[1, 1], [1, 1]], scalar_offset=place, indirect_dim=0))
        at = following
    place = nisa.register_alloc(at)
    for row in range(2):
        tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(
            dst=tile, src=x.ap([[512, 128], [1, 512]], offset=65536 * row, scalar_offset=place, indirect_dim=0)
        )
        nisa.activation(dst=tile, op=nl.silu, data=tile)
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), :], src=tile)
    return out
