# expect: pass
# workload: st_silu_current
# api: nki
# chip: trn2
# lnc: 2
"""Each core computes its own rows."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    core = nl.program_id(0)
    tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x[nl.ds(128 * core, 128), :])
    nisa.activation(dst=tile, op=nl.silu, data=tile)
    nisa.dma_copy(dst=out[nl.ds(128 * core, 128), :], src=tile)
    return out
