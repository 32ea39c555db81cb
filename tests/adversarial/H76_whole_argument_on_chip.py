# expect: pass
# workload: st_silu_current
# api: nki
# chip: trn2
"""Both blocks of rows lie beside each other in one tile with three axes."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    tile = nl.ndarray((128, 2, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x.ap(pattern=[[512, 128], [128 * 512, 2], [1, 512]], offset=0))
    nisa.activation(dst=tile, op=nl.silu, data=tile)
    nisa.dma_copy(dst=out.ap(pattern=[[512, 128], [128 * 512, 2], [1, 512]], offset=0), src=tile)
    return out
