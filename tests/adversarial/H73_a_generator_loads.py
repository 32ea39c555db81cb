# expect: pass
# workload: st_silu
# api: nki
# chip: trn2
"""A generator loads the tiles."""

import nki
import nki.isa as nisa
import nki.language as nl


def rows_of(x, size=128):
    for at in range(0, x.shape[0], size):
        tile = nl.ndarray((size, x.shape[1]), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[at : at + size, :])
        yield at, tile


@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for at, tile in rows_of(x):
        nisa.activation(dst=tile, op=nl.silu, data=tile)
        nisa.dma_copy(dst=out[at : at + tile.shape[0], :], src=tile)
    return out
